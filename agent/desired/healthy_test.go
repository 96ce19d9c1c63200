package desired

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Reconciler{}
		time.Sleep(time.Hour) // of waiting for the runtime
		if err := r.Healthy(time.Second); err != nil {
			t.Errorf("before the main loop began: %v", err)
		}
		now := time.Now()
		r.beat.Store(&now)
		if err := r.Healthy(time.Second); err != nil {
			t.Errorf("just after a turn: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := r.Healthy(time.Second); err == nil {
			t.Error("healthy though the main loop has stopped")
		}
	})
}
