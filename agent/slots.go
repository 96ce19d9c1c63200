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
type slots struct{ free chan struct{} }

func newSlots(n int) *slots {
	return &slots{free: make(chan struct{}, n)}
}

// Acquire waits for a slot; release gives it back, and is called for the caller after slotHold.
func (s *slots) Acquire(ctx context.Context) (release func(), err error) {
	select {
	case s.free <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for other pods to start: %w", context.Cause(ctx))
	}
	var once sync.Once
	give := func() { once.Do(func() { <-s.free }) }
	timer := time.AfterFunc(slotHold, give)
	return func() {
		timer.Stop()
		give()
	}, nil
}
