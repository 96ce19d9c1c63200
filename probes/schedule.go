package probes

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	// defaultPeriod and defaultTimeout are the API's defaults for periodSeconds and timeoutSeconds.
	defaultPeriod  = 10
	defaultTimeout = 1

	// readinessRetry is when a readiness probe that failed right after its container started runs
	// once more, before its period is over. A server usually listens a few milliseconds after its
	// start. The kubelet has an extra probe at each status update of a container that is not ready,
	// which follows its relist of one second.
	readinessRetry = time.Second

	// grid is the time grid for repeated runs. Probes of different containers then wake the agent
	// at the same moment: most of a probe's cost is the wake-up.
	grid = 50 * time.Millisecond
)

// periodOf returns the time between the starts of two runs.
func periodOf(spec *v1.Probe) time.Duration {
	return time.Duration(orDefault(spec.PeriodSeconds, defaultPeriod)) * time.Second
}

// timeoutOf returns how long one run may take.
func timeoutOf(spec *v1.Probe) time.Duration {
	return time.Duration(orDefault(spec.TimeoutSeconds, defaultTimeout)) * time.Second
}

// birth has the inputs of the first due time.
type birth struct {
	now, agentStart, containerStart time.Time
	// jitter returns a random duration in [0, d].
	jitter func(d time.Duration) time.Duration
}

// firstDue returns when a probe that may run from now on runs first: after the container's initial
// delay.
//
// If the agent took over a container that started earlier, and the agent runs for less than a
// period, the first run is a random part of a period later. So a restart of the agent does not
// start all probes of the node at the same time.
func firstDue(spec *v1.Probe, b birth) time.Time {
	due := b.now
	if delay := time.Duration(spec.InitialDelaySeconds) * time.Second; delay > 0 {
		// A start in the future means that the clock was put back. The delay must not grow by that.
		start := b.containerStart
		if start.IsZero() || start.After(b.now) {
			start = b.now
		}
		if left := delay - b.now.Sub(start); left > 0 {
			// This uses the monotonic clock, which the container's start does not have: the wall
			// clock may be set while the probe waits, and at any later time.
			due = b.now.Add(left)
		}
	}
	period := periodOf(spec)
	adopted := !b.containerStart.IsZero() && b.containerStart.Before(b.agentStart)
	if adopted && b.now.Sub(b.agentStart) < period {
		due = due.Add(b.jitter(period))
	}
	return due
}

// nextDue returns when the next run after the one at due comes: a period later, or at once if that
// time has passed. Missed runs are not repeated.
func nextDue(due, now time.Time, period time.Duration) time.Time {
	if next := due.Add(period); next.After(now) {
		return next
	}
	return now
}

// onGrid returns the first moment from t on that lies on the grid, which all probes share. Later
// runs are whole seconds apart, so they stay on the grid.
func onGrid(t time.Time) time.Time {
	if late := time.Duration(t.UnixNano()) % grid; late > 0 {
		return t.Add(grid - late)
	}
	return t
}
