package api

import "time"

// PathDrain is the path to drain the node: GET returns the state, POST takes a [DrainRequest],
// DELETE lets pods run again.
const PathDrain = "/berth/v1/drain"

// The states of a [Drain].
const (
	// Open means that pods may run.
	Open = "Open"
	// Draining means that pods are being stopped, and no pod starts.
	Draining = "Draining"
	// Drained means that no pod runs, and no pod starts.
	Drained = "Drained"
)

// Drain is the answer of [PathDrain].
type Drain struct {
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// Left are the pods that are not removed yet, as NAMESPACE/NAME, in any order.
	Left []string `json:"left,omitempty"`
}

// DrainRequest is the request to stop all pods.
type DrainRequest struct {
	// GraceSeconds replaces the pods' own grace periods if they are longer.
	GraceSeconds *int64 `json:"graceSeconds,omitempty"`
	// Hold keeps pods stopped over restarts of the agent, until a DELETE. Without it pods stay
	// stopped until the agent ends.
	Hold bool `json:"hold,omitempty"`
}
