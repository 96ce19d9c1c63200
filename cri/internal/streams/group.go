package streams

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/berthd/berth/cri"
)

// Group is the event streams of one client. Make one with [New], end it with [Group.Close].
type Group struct {
	running  sync.WaitGroup
	closing  context.Context // ends on Close; every stream ends with it
	shutdown context.CancelFunc

	mu     sync.Mutex
	closed bool
}

// New returns a group without a stream.
func New() *Group {
	g := &Group{}
	g.closing, g.shutdown = context.WithCancel(context.Background())
	return g
}

// Close ends every stream and waits for the group's goroutines. Closing twice is allowed.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.shutdown()
	g.running.Wait()
}

// Go runs f in a goroutine that [Group.Close] joins. After Close it returns an error of the class
// of context.Canceled.
func (g *Group) Go(f func()) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return fmt.Errorf("the runtime's connection is closed: %w", context.Canceled)
	}
	g.running.Go(f)
	return nil
}

// Read opens a runtime's stream and puts its events into the box until the stream breaks or ctx
// ends. It returns the reason, never nil.
type Read func(ctx context.Context, box *Mailbox) error

// Stands waits until a stream that is being read is known to be accepted, and returns nil. broken
// has the error of a stream that broke.
type Stands func(ctx context.Context, broken <-chan error) error

// Open starts a goroutine that reads a stream. If stands returns nil, Open returns the channel of
// the stream's events, or else the error of stands. The channel is closed when the stream breaks,
// when ctx ends, and on [Group.Close].
func (g *Group) Open(ctx context.Context, read Read, stands Stands) (<-chan cri.Event, error) {
	ctx, stop := g.context(ctx)
	box := newMailbox()
	broken := make(chan error, 1)
	err := g.Go(func() {
		// ends with the stream, while stands may still make calls
		reading, end := context.WithCancel(ctx)
		defer end()
		broken <- read(reading, box)
		box.close()
	})
	var out <-chan cri.Event
	if err == nil {
		err = stands(ctx, broken)
	}
	if err == nil {
		out, err = g.deliver(ctx, stop, box)
	}
	if err != nil {
		stop()
		return nil, err
	}
	return out, nil
}

// Answered returns a [Stands] that waits until the runtime answered a call that was sent after the
// stream was opened, and then for trial. If the stream is refused before that, Answered returns the
// refusal.
func Answered(call func(ctx context.Context) error, trial time.Duration) Stands {
	return func(ctx context.Context, broken <-chan error) error {
		if err := call(ctx); err != nil {
			return err
		}
		timer := time.NewTimer(trial)
		defer timer.Stop()
		select {
		case err := <-broken:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		select {
		case err := <-broken:
			return err
		default:
			return nil
		}
	}
}

// context returns a context that ends with the caller's and with [Group.Close].
func (g *Group) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(g.closing, cancel)
	return ctx, func() {
		release()
		cancel()
	}
}

// deliver gives the box's events to the returned channel, until the box is closed or ctx ends. It
// then calls stop and closes the channel.
func (g *Group) deliver(ctx context.Context, stop func(), box *Mailbox) (<-chan cri.Event, error) {
	out := make(chan cri.Event)
	return out, g.Go(func() {
		defer close(out)
		defer stop()
		for {
			event, ok := box.take(ctx)
			if !ok {
				return
			}
			select {
			case out <- event:
			case <-box.closed:
				return
			case <-ctx.Done():
				return
			}
		}
	})
}
