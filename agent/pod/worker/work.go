package worker

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/pods"
)

// Phase is where a pod's worker stands. It never goes back.
type Phase int

// The phases.
const (
	// Running: the pod should run; syncs bring it up and keep it up.
	Running Phase = iota
	// Terminating: containers are stopped and everything that the pod holds is given back.
	Terminating
	// Terminated: nothing runs; records (logs, exit codes, status) are kept until the pod is no
	// longer wanted.
	Terminated
)

// String returns the phase's name for logs and the timeline.
func (p Phase) String() string {
	return [...]string{"Running", "Terminating", "Terminated"}[p]
}

// Cause is what makes a pod end. Some causes are treated differently from others.
type Cause string

// The causes.
const (
	// CauseRemoved: no source wants the pod any more, the API server has deleted it, or all of its
	// containers have ended.
	CauseRemoved Cause = ""
	// CauseDeadline: the pod was active for activeDeadlineSeconds.
	CauseDeadline Cause = "Deadline"
	// CauseDrain: "berth drain" empties the node.
	CauseDrain Cause = "Drain"
	// CauseOperator: an operator has stopped the pod ("berth stop").
	CauseOperator Cause = "Operator"
	// CauseShutdown: the machine shuts down.
	CauseShutdown Cause = "Shutdown"
	// CausePreempted: the pod makes room for a critical pod.
	CausePreempted Cause = "Preempted"
	// CauseEvicted: the node runs short of something, and the pod has to leave.
	CauseEvicted Cause = "Evicted"
	// CauseOverLimit: the pod uses more local storage than its limits allow.
	CauseOverLimit Cause = "OverLimit"
)

// Stop is why and how a pod has to end.
type Stop struct {
	Cause Cause `json:"cause,omitempty"`
	// Reason and Message become the pod status's if they are set (Evicted, DeadlineExceeded…). They
	// are empty for a plain deletion.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Grace replaces the pod's own grace period, in seconds.
	Grace *int64 `json:"grace,omitempty"`
	// Since is when the worker began to end the pod. The worker sets it, once.
	Since time.Time `json:"since"`
}

// ComesBack reports whether a pod with this stop runs again: by the next agent, at the end of the
// drain, or when an operator starts it. The phase of such a pod must not become final. Only pods of
// this node's own manifests come back; an API server makes new pods instead. A shutdown ends a pod
// for good if the pod's restart policy is Never: it must not run twice.
func (s *Stop) ComesBack(pod *v1.Pod) bool {
	switch {
	case s == nil || pods.FromAPI(pod):
		return false
	case s.Cause == CauseShutdown:
		return pod.Spec.RestartPolicy != v1.RestartPolicyNever
	}
	return s.Cause == CauseDrain || s.Cause == CauseOperator
}

// Leaves reports whether the pod has to leave for the node's or an operator's sake, and not because
// its work or its time is over.
func (s *Stop) Leaves() bool {
	return s != nil && s.Cause != CauseRemoved && s.Cause != CauseDeadline
}

// Disruption returns the reason and the message of the condition DisruptionTarget of a pod that
// ends for the node's sake. Both are empty for other ends. A Job uses the condition to tell such
// an end from a failure of the pod itself.
func (s *Stop) Disruption() (reason, message string) {
	switch s.Cause {
	case CausePreempted: // the kubelet's words
		return v1.PodReasonTerminationByKubelet, "Pod was preempted by Kubelet to accommodate a critical pod."
	case CauseDrain, CauseShutdown, CauseEvicted:
		return v1.PodReasonTerminationByKubelet, s.Message
	}
	return "", ""
}

// Yields reports whether a pod with this stop succeeds nevertheless if all its containers end with
// 0, as a kubelet's pods do that have to leave for the node's sake.
func (s *Stop) Yields() bool {
	switch s.Cause {
	case CausePreempted, CauseEvicted, CauseOverLimit, CauseShutdown:
		return true
	}
	return false
}

// State is how far a pod has come, for an agent that takes the pod over from an earlier run. The
// zero value is a pod that should run.
type State struct {
	Phase Phase
	// Stop is why the pod ends, if that is known. It is set from Terminating on.
	Stop *Stop
	// UnwantedSince is since when nobody wants the pod any more. It is zero while somebody does.
	UnwantedSince time.Time
}

// Work is what a sync is about.
type Work struct {
	UID   types.UID
	Pod   *v1.Pod
	Phase Phase
	// Stop is set from Terminating on. It is never changed once handed out.
	Stop *Stop
	// Unwanted says that nobody wants the pod any more: in Terminated its records have to be
	// removed, too. UnwantedSince is since when, and Recorded says that this is on record.
	Unwanted      bool
	UnwantedSince time.Time
	Recorded      bool
}

// Result is how a sync ended.
type Result struct {
	// Done says that the phase's work is complete. In Terminating, everything is given back; in
	// Terminated, the records are removed.
	Done bool
	// Finished says, in Running, that nothing of the pod will ever run again. The worker goes on to
	// Terminating.
	Finished bool
	// Why says, with Finished, why the pod has to end. It is zero if the reason is that all of the
	// pod has ended.
	Why Stop
	// RetryAt asks for another sync at that time, whatever happens; zero for none.
	RetryAt time.Time
	// Err asks for another sync after the worker's back-off.
	Err error
}
