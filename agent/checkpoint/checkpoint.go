// Package checkpoint keeps on disk the few facts about a pod that the runtime does not.
//
// Purpose: a restart of the agent must disturb nothing: the pod as it was admitted (so that it can be ended properly when its manifest is gone),
// the admission's verdict, the last status, crash back-off, probe results, hooks that ran.
//
// Truth owned: admission verdicts and hook completions. All else is a memory of what others own, used only where they have forgotten.
//
// Concurrency: a [Store] is safe for concurrent use on different pods; the calls for one pod come from its worker alone.
package checkpoint

import (
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/plan"
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
	// Ended is set once everything that the pod held has been given back: it must never run again under this UID.
	Ended  bool          `json:"ended,omitempty"`
	Status *v1.PodStatus `json:"status,omitempty"`
	// Backoff is the crash back-off by container name.
	Backoff map[string]plan.Backoff `json:"backoff,omitempty"`
	// PostStart are the ids of running containers whose postStart hook still has to run or to finish.
	PostStart map[string]bool `json:"postStart,omitempty"`
	// InitializedIn is the sandbox in which initialisation was complete.
	InitializedIn string `json:"initializedIn,omitempty"`
	// Probes is what the probes said last.
	Probes probes.Snapshot `json:"probes,omitempty"`
}

// Rejected is a reason not to run a pod at all.
type Rejected struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}
