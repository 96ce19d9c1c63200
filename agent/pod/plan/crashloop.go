package plan

import "time"

// Backoff is the delay of CrashLoopBackOff of one container: how long its next restart has to wait
// after its end.
type Backoff struct {
	// Delay is counted from the container's end; zero means that nothing has crashed yet.
	Delay time.Duration `json:"delay"`
	// Set is when the restart that last raised Delay was due.
	Set time.Time `json:"set"`
}

// BackoffLimits are a pod's first and longest delay (upstream's defaults are 10 s and 300 s), and
// when a back-off ends.
type BackoffLimits struct {
	Initial, Max time.Duration
	// Reset is how long a container has to run after a restart until its back-off starts afresh.
	Reset time.Duration
	// CleanExitsFree says that an end with exit code 0 is no crash.
	CleanExitsFree bool
}

// cleanExitSpacing is the least time between two starts of a container that ends with exit code 0
// and waits for nothing else.
const cleanExitSpacing = time.Second

// DefaultBackoffLimits are upstream's: 10 s, doubled up to 5 minutes. A back-off starts afresh
// after twice the longest delay, as in client-go's flowcontrol.Backoff.
func DefaultBackoffLimits() BackoffLimits {
	return BackoffLimits{Initial: 10 * time.Second, Max: 300 * time.Second, Reset: 600 * time.Second}
}

// Free reports whether an end with that exit code is no crash.
func (l BackoffLimits) Free(exitCode int32) bool { return l.CleanExitsFree && exitCode == 0 }

// Until returns when a container that ended at finished may start again. The zero time means at
// once.
func (b Backoff) Until(finished time.Time, l BackoffLimits) time.Time {
	if b.Delay == 0 || b.expired(finished, l) {
		return time.Time{}
	}
	return finished.Add(min(b.Delay, l.Max))
}

// Next returns the back-off after a restart of a container that ended at finished. The first
// restart is at once and sets the initial delay. Each further restart doubles it. A container that
// ran for long enough starts afresh.
func (b Backoff) Next(finished time.Time, l BackoffLimits) Backoff {
	if due := b.Until(finished, l); !due.IsZero() {
		return Backoff{Delay: min(2*b.Delay, l.Max), Set: due}
	}
	return Backoff{Delay: min(l.Initial, l.Max), Set: finished}
}

// expired reports whether the container ran long enough since its last restart for the back-off to
// start afresh.
func (b Backoff) expired(finished time.Time, l BackoffLimits) bool {
	return finished.Sub(b.Set) > l.Reset
}
