package plan

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Backoff is the delay of CrashLoopBackOff of one container: how long its next restart has to wait
// after its end.
type Backoff struct {
	// Delay is counted from the container's end; zero means that nothing has crashed yet.
	Delay time.Duration `json:"delay"`
	// Set is when the restart that last raised Delay was due.
	Set time.Time `json:"set"`
	// Ended is the end after which that restart was made.
	Ended time.Time `json:"ended,omitzero"`
	// Of is the [BackoffKey] of the container at that restart. What starts with another image or
	// with other resources is not what crashed, and has no back-off. It is empty if nobody noted
	// it.
	Of string `json:"of,omitempty"`
}

// End is the end of a container that may start again.
type End struct {
	Finished time.Time
	// Killed says that the container was killed to start again, for instance by a liveness probe.
	Killed bool
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

// BackoffKey identifies what a back-off is of: a container's image and resources, as in the
// kubelet's GetBackoffKey.
func BackoffKey(c *v1.Container) string {
	// As JSON, equal quantities are equal texts, and a checkpoint keeps them.
	resources, _ := json.Marshal(c.Resources) // it never fails
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%s/%s", c.Image, resources) // neither does this
	return strconv.FormatUint(hash.Sum64(), 16)
}

// For returns the back-off of a container with that [BackoffKey].
func (b Backoff) For(key string) Backoff {
	if b.Of != "" && b.Of != key {
		return Backoff{}
	}
	return b
}

// Until returns when a container that ended may start again. The zero time means at once. For a
// container that was killed to start again, the delay is first counted from the end before that:
// what ran for longer than its delay starts again at once. (A kubelet kills and starts such a
// container in one sync, in which it knows only that earlier end. For the same reason its first
// kill sets no delay.)
func (b Backoff) Until(end End, l BackoffLimits) time.Time {
	delay := min(b.Delay, l.Max)
	switch {
	case delay == 0 || b.expired(end.Finished, l):
		return time.Time{}
	case end.Killed && !b.Ended.IsZero() && !end.Finished.Before(b.Ended.Add(delay)):
		return time.Time{}
	}
	return end.Finished.Add(delay)
}

// Next returns the back-off after a restart of a container that ended, and that has that
// [BackoffKey] now. The first restart is at once and sets the initial delay. Each further restart
// doubles it. A container that ran for long enough starts afresh.
func (b Backoff) Next(end End, key string, l BackoffLimits) Backoff {
	b = b.For(key)
	next := Backoff{Delay: min(l.Initial, l.Max), Set: end.Finished, Ended: end.Finished, Of: key}
	switch {
	case b.Delay > 0 && !b.expired(end.Finished, l):
		next.Delay = min(2*b.Delay, l.Max)
		if due := b.Until(end, l); !due.IsZero() {
			next.Set = due
		}
	case end.Killed && b.Ended.IsZero():
		next.Delay = 0
	}
	return next
}

// expired reports whether the container ran long enough since its last restart for the back-off to
// start afresh.
func (b Backoff) expired(finished time.Time, l BackoffLimits) bool {
	return finished.Sub(b.Set) > l.Reset
}
