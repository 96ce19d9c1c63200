package api

import "time"

// PathDrain is where a node is drained: GET says how it stands, POST takes a [DrainRequest], DELETE lets pods run again.
const PathDrain = "/berth/v1/drain"

// The states of a [Drain].
const (
	// Open: pods run as they are wanted.
	Open = "Open"
	// Draining: pods are being stopped, and none starts.
	Draining = "Draining"
	// Drained: no pod runs, and none starts.
	Drained = "Drained"
)

// Drain is the answer of [PathDrain].
type Drain struct {
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// Left are the pods that are not gone yet, as NAMESPACE/NAME, in any order.
	Left []string `json:"left,omitempty"`
}

// DrainRequest asks for all pods to be stopped.
type DrainRequest struct {
	// GraceSeconds replaces the pods' own grace periods where those are longer.
	GraceSeconds *int64 `json:"graceSeconds,omitempty"`
	// Hold keeps pods stopped over restarts of the agent, until somebody undoes it; without it, until the agent ends.
	Hold bool `json:"hold,omitempty"`
}
