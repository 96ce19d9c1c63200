package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Active is since when a pod has been active. The pod's status has that as a time of the wall
// clock, which may be set while the pod runs. From the first look at the status on, only the time
// that passes counts. The zero value has not looked yet.
type Active struct {
	started, since time.Time
}

// Deadline returns when the pod has been active for as long as it may be (activeDeadlineSeconds,
// counted from its start), and whether that time has come. It returns the zero time for a pod that
// may be active for ever, or has not started. A pod whose start is later than now counts as started
// now.
func (a *Active) Deadline(pod *v1.Pod, status *v1.PodStatus, now time.Time) (at time.Time, passed bool) {
	if pod.Spec.ActiveDeadlineSeconds == nil || status == nil || status.StartTime.IsZero() {
		return time.Time{}, false
	}
	if started := status.StartTime.Time; !a.started.Equal(started) {
		a.started, a.since = started, now.Add(-max(now.Sub(started), 0))
	}
	at = a.since.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second)
	return at, !now.Before(at)
}
