package images

import (
	"context"
	"errors"
	"sync"

	"github.com/containerd/errdefs"
)

// errClosed ends the pulls of a service that is closed.
var errClosed = errors.New("the image service is closed")

// joined are calls that several callers may wait for.
type joined struct {
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	calls  map[string]*call
}

// call is one call and those who wait for it.
type call struct {
	done    chan struct{} // closed when result and err are set
	result  string
	err     error
	cancel  context.CancelCauseFunc
	waiting int
}

// do returns what f returns. While a call of the same key runs, further callers wait for that one.
// The context of f lasts until f returns, all callers have given up, or close is called. A caller
// who gives up gets its own context's error.
func (j *joined) do(ctx context.Context, key string, f func(context.Context) (string, error)) (string, error) {
	c, err := j.join(ctx, key, f)
	if err != nil {
		return "", err
	}
	select {
	case <-c.done:
		return c.result, c.err
	case <-ctx.Done():
		j.leave(key, c)
		return "", ctx.Err()
	}
}

// join returns the running call of a key, or starts one.
func (j *joined) join(ctx context.Context, key string, f func(context.Context) (string, error)) (*call, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil, errors.Join(errClosed, errdefs.ErrUnavailable)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c := j.calls[key]; c != nil {
		c.waiting++
		return c, nil
	}
	shared, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &call{done: make(chan struct{}), cancel: cancel, waiting: 1}
	j.calls[key] = c
	j.running.Go(func() {
		defer cancel(nil)
		c.result, c.err = f(shared)
		j.forget(key, c)
		close(c.done)
	})
	return c, nil
}

// leave ends a call that nobody waits for any more. The next caller of the key starts another.
func (j *joined) leave(key string, c *call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.waiting--
	if c.waiting > 0 {
		return
	}
	c.cancel(context.Canceled)
	if j.calls[key] == c {
		delete(j.calls, key)
	}
}

func (j *joined) forget(key string, c *call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.calls[key] == c {
		delete(j.calls, key)
	}
}

// close ends all calls and waits for them. Later ones fail.
func (j *joined) close() {
	j.mu.Lock()
	j.closed = true
	for _, c := range j.calls {
		c.cancel(errClosed)
	}
	j.mu.Unlock()
	j.running.Wait()
}
