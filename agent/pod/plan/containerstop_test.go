package plan

import (
	"testing"
	"time"
)

func TestContainerStopLeft(t *testing.T) {
	s := ContainerStop{Since: now, Grace: 30 * time.Second}
	for at, want := range map[time.Duration]time.Duration{
		0: 30 * time.Second, 10 * time.Second: 20 * time.Second, 30 * time.Second: 0, time.Hour: 0,
		-time.Hour: 30 * time.Second, // the clock was put back
	} {
		if got := s.Left(now.Add(at)); got != want {
			t.Errorf("after %s: %s left, want %s", at, got, want)
		}
	}
	later := now.Add(20 * time.Second)
	if got := s.Resumed(later).Left(later); got != 30*time.Second {
		t.Errorf("without its signal it has %s", got)
	}
	s.Signaled = true
	if got := s.Resumed(later).Left(later); got != 10*time.Second {
		t.Errorf("with its signal it has %s", got)
	}
}
