package plan

import "time"

// Backoff is the crash back-off of one container: the delay that its next restart has to wait after its end.
type Backoff struct {
	// Delay is counted from the container's end; zero means that nothing has crashed yet.
	Delay time.Duration `json:"delay"`
	// Set is when the restart that raised Delay last was due.
	Set time.Time `json:"set"`
}

// BackoffLimits are a pod's first and longest delay (upstream's defaults 10 s and 300 s), and when it is forgotten.
type BackoffLimits struct {
	Initial, Max time.Duration
	// Reset is how long after a restart a container has to run for its back-off to be forgotten.
	Reset time.Duration
	// CleanExitsFree says that an end with exit code 0 is no crash.
	CleanExitsFree bool
}

// cleanExitSpacing is how far apart the starts of a container are at least that ends with exit code 0 and waits for nothing else.
const cleanExitSpacing = time.Second

// DefaultBackoffLimits are upstream's: 10 s, doubled up to 5 minutes, and forgotten after twice the longest, as client-go's flowcontrol.Backoff has it.
func DefaultBackoffLimits() BackoffLimits {
	return BackoffLimits{Initial: 10 * time.Second, Max: 300 * time.Second, Reset: 600 * time.Second}
}

// Free reports whether an end with that exit code is no crash.
func (l BackoffLimits) Free(exitCode int32) bool { return l.CleanExitsFree && exitCode == 0 }

// Until returns when a container that ended at finished may start again; the zero time means at once.
func (b Backoff) Until(finished time.Time, l BackoffLimits) time.Time {
	if b.Delay == 0 || b.expired(finished, l) {
		return time.Time{}
	}
	return finished.Add(min(b.Delay, l.Max))
}

// Next returns the back-off after a restart of a container that ended at finished: the first restart is at once and sets the initial delay,
// each further one doubles it, and a container that ran for long enough starts afresh.
func (b Backoff) Next(finished time.Time, l BackoffLimits) Backoff {
	if due := b.Until(finished, l); !due.IsZero() {
		return Backoff{Delay: min(2*b.Delay, l.Max), Set: due}
	}
	return Backoff{Delay: min(l.Initial, l.Max), Set: finished}
}

// expired reports whether the container ran long enough since its last restart for the back-off to be forgotten.
func (b Backoff) expired(finished time.Time, l BackoffLimits) bool {
	return finished.Sub(b.Set) > l.Reset
}
