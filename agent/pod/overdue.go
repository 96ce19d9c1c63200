package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/pod/plan"
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
	st := e.states.of(work.UID)
	due := overdueAt(work, st.record.Stops)
	if time.Now().Before(due) {
		res.RetryAt = steps.Earlier(res.RetryAt, due)
		return
	}
	if !st.overdue {
		st.overdue = true
		e.deps.Events.Pod(work.Pod, "", v1.EventTypeWarning, "ExceededGracePeriod",
			"Container runtime did not kill the pod within specified grace period.")
	}
}

// overdueAt returns when a pod should have left the node. A container whose grace was cut short has
// its time from then on, and not from the beginning of the pod's stop.
func overdueAt(work worker.Work, stops map[string]plan.ContainerStop) time.Time {
	grace := work.Stop.Grace
	if grace == nil {
		grace = work.Pod.Spec.TerminationGracePeriodSeconds
	}
	due := work.Stop.Since.Add(allowed(time.Duration(min(ptr.Deref(grace, 0), mostGrace)) * time.Second))
	for _, stop := range stops {
		if of := stop.Since.Add(allowed(min(stop.Grace, mostGrace*time.Second))); of.After(due) {
			due = of
		}
	}
	return due
}

// allowed returns how long a stop with this grace may take.
func allowed(grace time.Duration) time.Duration { return max(leastOverdue, grace*3/2) }
