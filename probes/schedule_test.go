package probes

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestFirstDue(t *testing.T) {
	agent := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return agent.Add(time.Duration(s) * time.Second) }
	tests := []struct {
		name            string
		delay, period   int32
		now, start      time.Time
		want            time.Time
		wantNoJitterAsk bool
	}{
		{"fresh container, no delay: at once", 0, 10, at(5), at(5), at(5), true},
		{"initial delay counts from the container's start", 7, 10, at(5), at(3), at(10), true},
		{"a delay that has passed", 7, 10, at(50), at(3), at(50), true},
		{"adopted by a young agent: half a period later", 0, 10, at(2), at(-100), at(7), false},
		{"adopted within its delay: both", 30, 10, at(2), at(-10), at(25), false},
		{"adopted by an agent older than a period", 0, 10, at(10), at(-100), at(10), true},
		{"unknown start: now", 7, 10, at(5), time.Time{}, at(12), true},
		{"start in the future: now", 7, 10, at(5), at(5000), at(12), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			asked := false
			got := firstDue(&v1.Probe{InitialDelaySeconds: tt.delay, PeriodSeconds: tt.period}, birth{
				now: tt.now, agentStart: agent, containerStart: tt.start,
				jitter: func(d time.Duration) time.Duration { asked = true; return d / 2 },
			})
			if !got.Equal(tt.want) {
				t.Errorf("due at %v, want %v", got.Sub(agent), tt.want.Sub(agent))
			}
			if asked == tt.wantNoJitterAsk {
				t.Errorf("jitter asked: %v", asked)
			}
		})
	}
}

func TestNextDue(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if got := nextDue(start, start.Add(time.Second), 10*time.Second); !got.Equal(start.Add(10 * time.Second)) {
		t.Errorf("in time: %v", got.Sub(start))
	}
	if got := nextDue(start, start.Add(35*time.Second), 10*time.Second); !got.Equal(start.Add(35 * time.Second)) {
		t.Errorf("late: %v, want at once and only once", got.Sub(start))
	}
}

func TestRunsMeetOnTheGrid(t *testing.T) {
	base := time.Unix(1_000_000, 0)
	for late, want := range map[time.Duration]time.Duration{
		0:         0,
		1:         grid,
		grid - 1:  grid,
		grid:      grid,
		grid + 1:  2 * grid,
		time.Hour: time.Hour,
	} {
		if got := onGrid(base.Add(late)); !got.Equal(base.Add(want)) {
			t.Errorf("%s after a moment of the grid: %s", late, got.Sub(base))
		}
	}
	due := firstDue(&v1.Probe{InitialDelaySeconds: 5}, birth{
		now:            time.Now(),
		containerStart: time.Now().Add(-time.Second).Round(0),
		jitter:         func(time.Duration) time.Duration { return 0 },
	})
	if !strings.Contains(due.String(), " m=") {
		t.Errorf("a probe that begins later is due at %s, a time that changes when the clock is set", due)
	}
	// with a monotonic clock reading, which a change of the wall clock must not disturb
	now := time.Now()
	next := onGrid(nextDue(now, now, time.Second))
	if d := next.Sub(now); d < time.Second || d >= time.Second+grid {
		t.Errorf("a probe of every second comes again after %s", d)
	}
	if again := onGrid(nextDue(next, next, time.Second)); again.Sub(next) != time.Second {
		t.Errorf("on the grid, it comes again after %s", again.Sub(next))
	}
}
