// Package checkpoint keeps on disk the few facts about a pod that the runtime does not keep.
//
// Purpose: a restart of the agent must disturb nothing. The record has the pod as it was admitted,
// so that the pod can be ended properly when its manifest is gone. It has the admission's result,
// why the pod ends, the last status, the crash back-off, the probe results, and which hooks ran.
//
// Truth owned: admission results, completed hooks, allocated and actuated resources, and the
// reasons of ends. All else belongs to others; the copy here is used only if the owner has lost it.
//
// Concurrency: a [Store] is safe for concurrent use on different pods. The calls for one pod come
// from its worker alone.
package checkpoint

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/resize"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/probes"
)

// Version is the format's version. A record of another version is not read.
const Version = 1

// Record is what is kept of one pod.
type Record struct {
	Version int `json:"version"`
	// Pod is the pod as it was admitted, without its status.
	Pod *v1.Pod `json:"pod"`
	// File is the manifest that the pod came from. It is empty if the pod did not come from a
	// manifest.
	File string `json:"file,omitempty"`
	// Admitted and Rejected are the result of admission. Neither is set before admission.
	Admitted bool      `json:"admitted,omitempty"`
	Rejected *Rejected `json:"rejected,omitempty"`
	// Stop is why the pod ends, from the moment that it begins to end. UnwantedSince is since when
	// nobody wants the pod; it is zero while somebody does.
	Stop          *worker.Stop `json:"stop,omitempty"`
	UnwantedSince time.Time    `json:"leaving,omitzero"`
	// Ended is set once everything that the pod held has been given back. The pod must never run
	// again under this UID.
	Ended  bool          `json:"ended,omitempty"`
	Status *v1.PodStatus `json:"status,omitempty"`
	// Backoff is the crash back-off by container name.
	Backoff map[string]plan.Backoff `json:"backoff,omitempty"`
	// PostStart are the ids of running containers whose postStart hook still has to run or to
	// finish.
	PostStart map[string]bool `json:"postStart,omitempty"`
	// Stops are the stops of running containers that have begun, by id.
	Stops map[string]plan.ContainerStop `json:"stops,omitempty"`
	// StartFailed has the ids of containers whose start the runtime answered with an error. The
	// ends of these containers count as crashes. A container that ended without having run, and is
	// not among them, was cut off: it counts as never started.
	StartFailed map[string]bool `json:"startFailed,omitempty"`
	// KilledToRestart has the ids of containers that were killed to start again, whatever they end
	// with. Its JSON name is older than its name here.
	KilledToRestart map[string]bool `json:"condemned,omitempty"`
	// Asked are the restarts that an operator asked for, by the id of the attempt that ends, or has
	// ended, for the restart.
	Asked map[string]plan.AskedRestart `json:"asked,omitempty"`
	// RestartAll is set while all containers of the pod start again (KEP-5532).
	RestartAll *RestartAll `json:"restartAll,omitempty"`
	// Ephemeral are the ephemeral containers that were added to the pod on this node.
	Ephemeral []v1.EphemeralContainer `json:"ephemeral,omitempty"`
	// InitializedIn is the sandbox in which initialisation was complete.
	InitializedIn string `json:"initializedIn,omitempty"`
	// Resize is a resize that is not done. It is nil for a pod that has what its spec asks for.
	Resize *resize.State `json:"resize,omitempty"`
	// Probes is what the probes reported last.
	Probes probes.Snapshot `json:"probes,omitempty"`
}

// RaiseBackoff counts a restart of a container after the end of its previous attempt.
func (r *Record) RaiseBackoff(c *v1.Container, previous *plan.Container, limits plan.BackoffLimits) {
	if r.Backoff == nil {
		r.Backoff = map[string]plan.Backoff{}
	}
	r.Backoff[c.Name] = r.Backoff[c.Name].Next(r.EndOf(previous), plan.BackoffKey(c), limits)
}

// EndOf returns how an ended container ended, for its back-off.
func (r *Record) EndOf(c *plan.Container) plan.End {
	return plan.End{Finished: time.Unix(0, c.FinishedAt), Killed: r.KilledToRestart[c.Id]}
}

// MarkKilledToRestart records that a container is killed to start again.
func (r *Record) MarkKilledToRestart(id string) {
	if r.KilledToRestart == nil {
		r.KilledToRestart = map[string]bool{}
	}
	r.KilledToRestart[id] = true
}

// Ask records that an operator asked for a restart, of the container with that attempt.
func (r *Record) Ask(id string, how plan.AskedRestart) {
	if r.Asked == nil {
		r.Asked = map[string]plan.AskedRestart{}
	}
	r.Asked[id] = how
}

// RestartAll is how far a restart of all containers has come.
type RestartAll struct {
	// Cleaning is true as long as containers are being ended and removed.
	Cleaning bool `json:"cleaning,omitempty"`
	// Removed has the containers, by name, that the restart has removed and that were not made
	// again yet.
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

// Resume lets the record's stops go on from now. It returns how far the pod had come, for the pod's
// worker. An end without a status counts as no end: the pod is taken down again, which finds
// nothing to do, and gets the status that its source waits for.
func (r *Record) Resume(now time.Time) worker.State {
	r.Ended = r.Ended && r.Status != nil
	for id, stop := range r.Stops {
		r.Stops[id] = stop.Resumed(now)
	}
	s := worker.State{Stop: r.Stop, UnwantedSince: r.UnwantedSince}
	switch {
	case r.Ended:
		s.Phase = worker.Terminated
	case r.Stop != nil:
		s.Phase = worker.Terminating
	}
	return s
}
