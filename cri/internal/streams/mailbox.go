package streams

import (
	"context"
	"sync"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/notify"
)

// Mailbox lies between a runtime's stream, which must never wait, and a reader who may.
// (containerd's CRI plugin delays its own work for a subscriber that does not read.) It keeps the
// events that were put and not yet taken in order, once per object and type, so the number of
// objects on the node limits it.
type Mailbox struct {
	mu      sync.Mutex
	pending []cri.Event
	filled  notify.Signal // holds a notification while pending may be non-empty
	closed  chan struct{}
}

func newMailbox() *Mailbox {
	return &Mailbox{filled: notify.New(), closed: make(chan struct{})}
}

// Put adds an event without waiting. If an event for the same object and type is pending, the new
// event takes its place.
func (b *Mailbox) Put(event cri.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.pending {
		if b.pending[i].ID == event.ID && b.pending[i].Type == event.Type {
			b.pending[i] = event
			return
		}
	}
	b.pending = append(b.pending, event)
	b.filled.Notify()
}

// take waits for an event. It returns false after close or when ctx ends.
func (b *Mailbox) take(ctx context.Context) (cri.Event, bool) {
	for {
		select {
		case <-ctx.Done():
			return cri.Event{}, false
		case <-b.closed:
			return cri.Event{}, false
		case <-b.filled:
		}
		b.mu.Lock()
		if len(b.pending) == 0 {
			b.mu.Unlock()
			continue
		}
		event := b.pending[0]
		b.pending = b.pending[1:]
		if len(b.pending) > 0 {
			b.filled.Notify()
		} else {
			b.pending = nil
		}
		b.mu.Unlock()
		return event, true
	}
}

// close ends the box and drops what is pending: after a stream broke, the reader lists everything.
// Call it once.
func (b *Mailbox) close() { close(b.closed) }
