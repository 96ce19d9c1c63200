package pod

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// startHold is how long a pod's start may keep its slot. A call of the runtime that hangs must not
// keep other pods from starting.
const startHold = 10 * time.Second

// StartLimiter bounds how many pods start at once. On two cores a runtime starts the most pods per
// second with four to eight starts at a time, and a third fewer with fifty.
type StartLimiter struct {
	free chan struct{}

	mu      sync.Mutex
	waiting int
	// calm is closed when nobody waits any more; nil while nobody waits.
	calm chan struct{}
}

// NewStartLimiter returns a limiter that lets n pods start at once.
func NewStartLimiter(n int) *StartLimiter {
	return &StartLimiter{free: make(chan struct{}, n)}
}

// Acquire waits for a slot. release gives the slot back; after startHold the limiter takes it back
// by itself.
func (s *StartLimiter) Acquire(ctx context.Context) (release func(), err error) {
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
	timer := time.AfterFunc(startHold, give)
	return func() {
		timer.Stop()
		give()
	}, nil
}

// queue adds n to the number of waiting pods.
func (s *StartLimiter) queue(n int) {
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

// Queued returns a channel that is closed once no pod waits for a slot any more; nil while no pod
// waits.
func (s *StartLimiter) Queued() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calm
}
