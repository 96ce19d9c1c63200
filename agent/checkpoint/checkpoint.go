// Package checkpoint keeps on disk the few facts about a pod that the runtime does not.
//
// Purpose: a restart of the agent must disturb nothing: the pod as it was admitted (so that it can be ended properly when its manifest is gone),
// the admission's verdict, why it ends, the last status, crash back-off, probe results, hooks that ran.
//
// Truth owned: admission verdicts, hook completions, allocated and actuated resources, and the reasons of ends. All else is a memory of what others own, used only where they have forgotten.
//
// Concurrency: a [Store] is safe for concurrent use on different pods; the calls for one pod come from its worker alone.
package checkpoint

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/agent/resize"
	"github.com/berthd/berth/agent/worker"
	"github.com/berthd/berth/probes"
)

// Version is the format's version; a record of another version is not read.
const Version = 1

// Record is what is kept of one pod.
type Record struct {
	Version int `json:"version"`
	// Pod is the pod as it was admitted, without its status.
	Pod *v1.Pod `json:"pod"`
	// File is the manifest that it came from, where it came from one.
	File string `json:"file,omitempty"`
	// Admitted and Rejected are admission's verdict; neither is set before it.
	Admitted bool      `json:"admitted,omitempty"`
	Rejected *Rejected `json:"rejected,omitempty"`
	// Stop is why the pod ends, from the moment that it does. Leaving is since when nobody wants it; zero where somebody does.
	Stop    *worker.Stop `json:"stop,omitempty"`
	Leaving time.Time    `json:"leaving,omitzero"`
	// Ended is set once everything that the pod held has been given back: it must never run again under this UID.
	Ended  bool          `json:"ended,omitempty"`
	Status *v1.PodStatus `json:"status,omitempty"`
	// Backoff is the crash back-off by container name.
	Backoff map[string]plan.Backoff `json:"backoff,omitempty"`
	// PostStart are the ids of running containers whose postStart hook still has to run or to finish.
	PostStart map[string]bool `json:"postStart,omitempty"`
	// Stops are the stops of running containers that have begun, by id.
	Stops map[string]plan.ContainerStop `json:"stops,omitempty"`
	// StartFailed are the ids of containers whose start the runtime answered with an error: their ends count as crashes. One that ended without having run and is
	// not among them was cut off, as if it had never been started.
	StartFailed map[string]bool `json:"startFailed,omitempty"`
	// Condemned are the ids of containers that were killed to be started again, whatever they end with.
	Condemned map[string]bool `json:"condemned,omitempty"`
	// RestartAll is set while all containers of the pod start again (KEP-5532).
	RestartAll *RestartAll `json:"restartAll,omitempty"`
	// Ephemeral are the ephemeral containers that were added to the pod on this node.
	Ephemeral []v1.EphemeralContainer `json:"ephemeral,omitempty"`
	// InitializedIn is the sandbox in which initialisation was complete.
	InitializedIn string `json:"initializedIn,omitempty"`
	// Resize is a resize that is not done; nil for a pod that has what its spec asks for.
	Resize *resize.State `json:"resize,omitempty"`
	// Probes is what the probes said last.
	Probes probes.Snapshot `json:"probes,omitempty"`
}

// RaiseBackoff counts a restart of a container that ended at finished.
func (r *Record) RaiseBackoff(container string, finished time.Time, limits plan.BackoffLimits) {
	if r.Backoff == nil {
		r.Backoff = map[string]plan.Backoff{}
	}
	r.Backoff[container] = r.Backoff[container].Next(finished, limits)
}

// Condemn notes that a container is killed to be started again.
func (r *Record) Condemn(id string) {
	if r.Condemned == nil {
		r.Condemned = map[string]bool{}
	}
	r.Condemned[id] = true
}

// RestartAll is how far a restart of all containers has come.
type RestartAll struct {
	// Cleaning is true as long as containers are being ended and removed.
	Cleaning bool `json:"cleaning,omitempty"`
	// Removed are the containers, by name, that are removed by it and were not made again yet.
	Removed map[string]bool `json:"removed,omitempty"`
	// Hold is the back-off that the new start waits for.
	Hold *plan.Hold `json:"hold,omitempty"`
}

// Rejected is a reason not to run a pod at all.
type Rejected struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Detail is what is known beyond the message.
	Detail string `json:"detail,omitempty"`
}

// Resume has the record's stops go on from now, and returns how far the pod had come, for its worker.
func (r *Record) Resume(now time.Time) worker.State {
	for id, stop := range r.Stops {
		r.Stops[id] = stop.Resumed(now)
	}
	s := worker.State{Stop: r.Stop, Leaving: r.Leaving}
	switch {
	case r.Ended:
		s.Phase = worker.Terminated
	case r.Stop != nil:
		s.Phase = worker.Terminating
	}
	return s
}
