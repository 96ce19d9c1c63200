package probes

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	// defaultPeriod and defaultTimeout are the API's defaults for periodSeconds and timeoutSeconds.
	defaultPeriod  = 10
	defaultTimeout = 1

	// settle is when a readiness probe that failed right after its container started is tried once more, ahead of its period.
	// A server usually listens a few milliseconds after its start; the kubelet gets there by an extra probe at each status
	// update of a container that is not ready, which follows its one-second relist.
	settle = time.Second

	// grid is what repeated runs are put on, so that those of different containers wake the agent together: most of what a probe costs it is waking up.
	grid = 50 * time.Millisecond
)

// periodOf returns how far apart the probe's runs begin.
func periodOf(spec *v1.Probe) time.Duration {
	return time.Duration(orDefault(spec.PeriodSeconds, defaultPeriod)) * time.Second
}

// timeoutOf returns how long one run may take.
func timeoutOf(spec *v1.Probe) time.Duration {
	return time.Duration(orDefault(spec.TimeoutSeconds, defaultTimeout)) * time.Second
}

// birth is what the first due time depends on.
type birth struct {
	now, agentStart, containerStart time.Time
	// jitter returns a random duration in [0, d].
	jitter func(d time.Duration) time.Duration
}

// firstDue returns when a probe that may run from now on runs first: after the container's initial delay, and where the agent
// took over a container that ran before it and has itself been up for less than a period, a random part of a period later, so
// that a restart of the agent does not fire every probe of the node at once.
func firstDue(spec *v1.Probe, b birth) time.Time {
	due := b.now
	if delay := time.Duration(spec.InitialDelaySeconds) * time.Second; delay > 0 {
		// A start in the future is a clock that was set back; the delay must not grow by it.
		start := b.containerStart
		if start.IsZero() || start.After(b.now) {
			start = b.now
		}
		if left := delay - b.now.Sub(start); left > 0 {
			due = b.now.Add(left) // by the monotonic clock, which the start has no reading of: the wall clock may be set while the probe waits, and ever after
		}
	}
	period := periodOf(spec)
	adopted := !b.containerStart.IsZero() && b.containerStart.Before(b.agentStart)
	if adopted && b.now.Sub(b.agentStart) < period {
		due = due.Add(b.jitter(period))
	}
	return due
}

// nextDue returns when the run after the one that was due at due comes: a period later, or at once where that has passed.
// Missed runs are not made up for.
func nextDue(due, now time.Time, period time.Duration) time.Time {
	if next := due.Add(period); next.After(now) {
		return next
	}
	return now
}

// onGrid returns the first moment from t on that lies on the grid, which all probes share. Once there, a probe's later runs, whole seconds apart, stay on it.
func onGrid(t time.Time) time.Time {
	if late := time.Duration(t.UnixNano()) % grid; late > 0 {
		return t.Add(grid - late)
	}
	return t
}
