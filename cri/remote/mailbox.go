package remote

import (
	"context"
	"sync"

	"github.com/berthd/berth/cri"
)

// mailbox lies between a runtime's stream, which must never wait (containerd's CRI plugin holds up its own work for a subscriber
// that does not read), and a reader who may. It keeps what was put and not yet taken in order, once per object and type, so it is bounded
// by what exists on the node.
type mailbox struct {
	mu      sync.Mutex
	pending []cri.Event
	filled  chan struct{} // holds one token while pending may be non-empty
	closed  chan struct{}
}

func newMailbox() *mailbox {
	return &mailbox{filled: make(chan struct{}, 1), closed: make(chan struct{})}
}

// put adds an event without waiting; one still pending for the same object and type is replaced by it, in its place.
func (b *mailbox) put(event cri.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.pending {
		if b.pending[i].ID == event.ID && b.pending[i].Type == event.Type {
			b.pending[i] = event
			return
		}
	}
	b.pending = append(b.pending, event)
	select {
	case b.filled <- struct{}{}:
	default:
	}
}

// take waits for an event; false after close or when ctx ends.
func (b *mailbox) take(ctx context.Context) (cri.Event, bool) {
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
			select {
			case b.filled <- struct{}{}:
			default:
			}
		} else {
			b.pending = nil
		}
		b.mu.Unlock()
		return event, true
	}
}

// close ends the box; what is pending is dropped, because the reader lists everything after a stream broke. Call it once.
func (b *mailbox) close() { close(b.closed) }
