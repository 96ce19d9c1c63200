package retry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestDelayDoublesUpToMost(t *testing.T) {
	b := Backoff{First: 100 * time.Millisecond, Most: time.Second}
	for failures, want := range map[int]time.Duration{
		-1: 100 * time.Millisecond, 0: 100 * time.Millisecond, 1: 100 * time.Millisecond, 2: 200 * time.Millisecond,
		4: 800 * time.Millisecond, 5: time.Second, 16: time.Second, 17: time.Second, 1 << 40: time.Second,
	} {
		if got := b.Delay(failures); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
		if got := b.Jittered(failures); got < want || got > want+want/5 {
			t.Errorf("after %d failures, with jitter: %s", failures, got)
		}
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if !Sleep(ctx, 500*time.Millisecond) {
			t.Error("the context had not ended")
		}
		if (Backoff{First: time.Hour, Most: time.Hour}).Wait(ctx, 1) {
			t.Error("the context ended first")
		}
	})
}
