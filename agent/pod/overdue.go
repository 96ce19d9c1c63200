package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/steps"
	"github.com/berthd/berth/agent/pod/worker"
)

// leastOverdue is how long a pod that is asked to leave the node may take at least. It is a
// kubelet's.
const leastOverdue = 10 * time.Second

// mostGrace is the longest grace period that is told from longer ones, in seconds: a century.
const mostGrace = 100 * 365 * 24 * 3600

// reportOverdue reports, once, a pod that was asked to leave the node and is still there after one
// and a half times its grace period, as a kubelet reports pods that it evicts, preempts or shuts
// down. It makes the worker look again when that is due.
func (e *Engine) reportOverdue(work worker.Work, res *worker.Result) {
	if work.Phase != worker.Terminating || res.Done || !work.Stop.Leaves() {
		return
	}
	grace := work.Stop.Grace
	if grace == nil {
		grace = work.Pod.Spec.TerminationGracePeriodSeconds
	}
	allowed := leastOverdue
	if grace != nil {
		allowed = max(allowed, time.Duration(min(*grace, mostGrace))*time.Second*3/2)
	}
	due := work.Stop.Since.Add(allowed)
	if time.Now().Before(due) {
		res.RetryAt = steps.Earlier(res.RetryAt, due)
		return
	}
	if st := e.states.of(work.UID); !st.overdue {
		st.overdue = true
		e.deps.Events.Pod(work.Pod, "", v1.EventTypeWarning, "ExceededGracePeriod",
			"Container runtime did not kill the pod within specified grace period.")
	}
}
