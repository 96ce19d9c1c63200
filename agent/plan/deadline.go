package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// ActiveDeadline returns when the pod has been active for as long as it may be (activeDeadlineSeconds), counted from its start, and whether that time has
// come; the zero time for a pod that may be active for ever, or has not started.
func ActiveDeadline(pod *v1.Pod, status *v1.PodStatus, now time.Time) (at time.Time, passed bool) {
	if pod.Spec.ActiveDeadlineSeconds == nil || status == nil || status.StartTime.IsZero() {
		return time.Time{}, false
	}
	at = status.StartTime.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second)
	return at, !now.Before(at)
}
