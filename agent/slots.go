package agent

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// slotHold is how long a pod's start may keep its slot: a runtime call that hangs must not keep other pods from starting.
const slotHold = 10 * time.Second

// slots bounds how many pods start at once: a runtime starts most pods per second at a few at a time (DESIGN, section 3).
type slots struct {
	free chan struct{}

	mu      sync.Mutex
	waiting int
	// calm is closed when nobody waits any more; nil while nobody does.
	calm chan struct{}
}

func newSlots(n int) *slots {
	return &slots{free: make(chan struct{}, n)}
}

// Acquire waits for a slot; release gives it back, and is called for the caller after slotHold.
func (s *slots) Acquire(ctx context.Context) (release func(), err error) {
	select {
	case s.free <- struct{}{}:
	default:
		s.queue(1)
		defer s.queue(-1)
		select {
		case s.free <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for other pods to start: %w", context.Cause(ctx))
		}
	}
	var once sync.Once
	give := func() { once.Do(func() { <-s.free }) }
	timer := time.AfterFunc(slotHold, give)
	return func() {
		timer.Stop()
		give()
	}, nil
}

// queue counts those that wait.
func (s *slots) queue(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting += n
	switch {
	case s.waiting == 0:
		close(s.calm)
		s.calm = nil
	case s.calm == nil:
		s.calm = make(chan struct{})
	}
}

// Queued returns what is closed once no pod waits any more for others to start; nil where none does.
func (s *slots) Queued() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calm
}
