package pod

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestStartLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStartLimiter(1)
		if s.Queued() != nil {
			t.Error("somebody waits before anybody came")
		}
		release, err := s.Acquire(t.Context())
		if err != nil || s.Queued() != nil {
			t.Fatalf("the first got %v, queue %v", err, s.Queued())
		}
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 2)
		go func() { _, err := s.Acquire(ctx); got <- err }()
		go func() { _, err := s.Acquire(t.Context()); got <- err }()
		synctest.Wait()
		calm := s.Queued()
		if calm == nil {
			t.Fatal("nobody waits, and two do")
		}
		cancel()
		if err := <-got; err == nil || s.Queued() != calm {
			t.Errorf("the one that gave up got %v; is the queue the same: %v", err, s.Queued() == calm)
		}
		release()
		release() // a second release has no effect
		if err := <-got; err != nil {
			t.Error(err)
		}
		<-calm
		if s.Queued() != nil {
			t.Error("somebody waits after all came in")
		}
		began := time.Now()
		if _, err := s.Acquire(t.Context()); err != nil || time.Since(began) != startHold {
			t.Errorf("a slot was held for %v, %v", time.Since(began), err)
		}
	})
}
