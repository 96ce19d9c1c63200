package worker

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Phase is where a pod's worker stands. It never goes back.
type Phase int

// The phases.
const (
	// Running: the pod should run; passes bring it up and keep it up.
	Running Phase = iota
	// Terminating: containers are stopped and everything that the pod holds is given back.
	Terminating
	// Terminated: nothing runs; records (logs, exit codes, status) are kept until the pod is no longer wanted.
	Terminated
)

// String returns the phase's name for logs and the timeline.
func (p Phase) String() string {
	return [...]string{"Running", "Terminating", "Terminated"}[p]
}

// Stop is why and how a pod has to end.
type Stop struct {
	// Reason and Message become the pod status's where they are set (Evicted, DeadlineExceeded…); empty for a plain deletion.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Grace replaces the pod's own grace period, in seconds.
	Grace *int64 `json:"grace,omitempty"`
	// Since is when the worker began to end the pod; the worker sets it, once.
	Since time.Time `json:"since"`
}

// State is how far a pod has come, for whoever takes it over from an earlier run of the agent. The zero value is a pod that should run.
type State struct {
	Phase Phase
	// Stop is why the pod ends, where that is known; from Terminating on.
	Stop *Stop
	// Leaving is since when nobody wants the pod any more; zero where somebody does.
	Leaving time.Time
}

// Work is what a pass is about.
type Work struct {
	UID   types.UID
	Pod   *v1.Pod
	Phase Phase
	// Stop is set from Terminating on. It is never changed once handed out.
	Stop *Stop
	// Forget says that nobody wants the pod any more: in Terminated its records have to go, too. Leaving is since when; Recorded says that this is on record.
	Forget   bool
	Leaving  time.Time
	Recorded bool
}

// Result is how a pass ended.
type Result struct {
	// Done says that the phase's work is complete: in Terminating, that everything is given back; in Terminated, that the records are gone.
	Done bool
	// Finished says, in Running, that nothing of the pod will ever run again: the worker goes on to Terminating.
	Finished bool
	// Why says, with Finished, why the pod has to end, where it is not that all of it has ended.
	Why Stop
	// RetryAt asks for another pass at that time, whatever happens; zero for none.
	RetryAt time.Time
	// Err asks for another pass after the worker's back-off.
	Err error
}
