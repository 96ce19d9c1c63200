package fake

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

// streamBuffer is how many events a slow reader may be behind before the stream drops events.
const streamBuffer = 1024

// stream is one event stream. The node's lock guards it.
type stream struct {
	conn *connection
	ch   chan cri.Event
}

// Events returns a stream of what happens from now on. A reader that is too slow loses events.
func (r *Runtime) Events(ctx context.Context) (<-chan cri.Event, error) {
	n := r.node
	return call(ctx, r, Call{Method: "Events", Request: &runtimeapi.GetEventsRequest{}},
		func(context.Context) (<-chan cri.Event, error) {
			if n.cfg.NoEvents {
				return nil, errdefs.ErrNotImplemented.WithMessage("unknown method GetContainerEvents")
			}
			s := &stream{conn: r.conn, ch: make(chan cri.Event, streamBuffer)}
			n.mu.Lock()
			defer n.mu.Unlock()
			n.streams[s] = struct{}{}
			context.AfterFunc(ctx, func() {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.closeStream(s)
			})
			return s.ch, nil
		})
}

// BreakEvents ends every event stream, as a broken connection does.
func (r *Runtime) BreakEvents() {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.streams {
		n.closeStream(s)
	}
}

// Emit sends an event although nothing happened, such as a duplicate, a late or a false event.
func (r *Runtime) Emit(e cri.Event) {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	r.node.send(e)
}

// closeStream ends a stream. A second call does nothing. The caller holds the lock.
func (n *node) closeStream(s *stream) {
	if _, open := n.streams[s]; open {
		delete(n.streams, s)
		close(s.ch)
	}
}

// emit sends an event about something that happened now. The caller holds the lock.
func (n *node) emit(kind cri.EventType, id string, pod cri.PodID) {
	n.send(cri.Event{Type: kind, ID: id, PodUID: string(pod.UID), Time: time.Now()})
}

func (n *node) send(e cri.Event) {
	for s := range n.streams {
		select {
		case s.ch <- e:
		default: // the reader is too slow
		}
	}
}
