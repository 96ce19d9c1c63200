package plan

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Container is one incarnation of a container as the runtime reports it.
type Container struct {
	*runtimeapi.ContainerStatus
	// SandboxID is the sandbox it was made in: what ran in an earlier sandbox says nothing about this one's initialisation.
	SandboxID string
	// Hash is the hash of the container's spec that it was made from, from its annotations.
	Hash string
}

// Name returns the container's name in the pod.
func (c *Container) Name() string { return c.GetMetadata().GetName() }

// Attempt returns which incarnation it is, which is the restart count it was made with.
func (c *Container) Attempt() uint32 { return c.GetMetadata().GetAttempt() }

// Running reports whether its process may be running: an unknown state counts, since two instances must never run at once.
func (c *Container) Running() bool {
	return c.State == runtimeapi.ContainerState_CONTAINER_RUNNING || c.Unknown()
}

// Created reports whether it was made and never started: a pass did not live to start it, or its start failed.
func (c *Container) Created() bool { return c.State == runtimeapi.ContainerState_CONTAINER_CREATED }

// Unknown reports whether the runtime lost track of it.
func (c *Container) Unknown() bool { return c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN }

// Exited reports whether its process ran and ended.
func (c *Container) Exited() bool { return c.State == runtimeapi.ContainerState_CONTAINER_EXITED }

// Observed is what the runtime has of one pod.
type Observed struct {
	// Sandboxes are the pod's sandboxes, the latest attempt first.
	Sandboxes []*runtimeapi.PodSandboxStatus
	// Containers are all incarnations of all its containers, the latest attempt of each name first.
	Containers []*Container
}

// Sort brings the sandboxes and containers into the order that the fields promise.
func (o *Observed) Sort() {
	slices.SortStableFunc(o.Sandboxes, func(a, b *runtimeapi.PodSandboxStatus) int {
		return cmp.Or(
			cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()),
			cmp.Compare(b.CreatedAt, a.CreatedAt),
		)
	})
	slices.SortStableFunc(o.Containers, func(a, b *Container) int {
		return cmp.Or(cmp.Compare(b.Attempt(), a.Attempt()), cmp.Compare(b.CreatedAt, a.CreatedAt))
	})
}

// Latest returns the latest incarnation of the named container, nil where there is none.
func (o *Observed) Latest(name string) *Container {
	for _, c := range o.Containers {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// lastEnded returns the latest incarnation of the named container that ran and ended, nil where there is none.
func (o *Observed) lastEnded(name string) *Container {
	for _, c := range o.Containers {
		if c.Name() == name && c.Exited() {
			return c
		}
	}
	return nil
}

// Sandbox returns the latest sandbox, nil where there is none.
func (o *Observed) Sandbox() *runtimeapi.PodSandboxStatus {
	if len(o.Sandboxes) == 0 {
		return nil
	}
	return o.Sandboxes[0]
}

// Running returns the containers whose processes may be running.
func (o *Observed) Running() []*Container {
	var out []*Container
	for _, c := range o.Containers {
		if c.Running() {
			out = append(out, c)
		}
	}
	return out
}

// ProbeState is what the probes say of a container.
type ProbeState struct {
	// ContainerID is the incarnation that was probed.
	ContainerID string
	// Started is true once the startup probe succeeded, or at once where there is none.
	Started bool
	// Failed names the probe that wants the container killed, "Liveness" or "Startup"; empty where none does.
	Failed string
}

// Operation is something under way on a container that the worker started and has not finished.
type Operation string

// The operations that hold back decisions about a container.
const (
	Stopping  Operation = "stopping"
	PostStart Operation = "postStart"
)

// Hold is the crash back-off that a restart of all containers has to wait for.
type Hold struct {
	// Until is when the first container may start, Delay the back-off that this comes from, and By the container that asked for the restart.
	Until time.Time     `json:"until"`
	Delay time.Duration `json:"delay"`
	By    string        `json:"by"`
}

// Input is all that a decision may depend on.
type Input struct {
	Pod      *v1.Pod
	Observed Observed
	// Hash gives the hash of a container's spec (cri.ContainerHash).
	Hash func(*v1.Container) string
	// Probes are the probes' verdicts by container name.
	Probes map[string]ProbeState
	// Busy are the operations under way, by container id.
	Busy map[string]Operation
	// Resize are the ids of running containers whose new resources need a restart (resizePolicy RestartContainer).
	Resize map[string]bool
	// Stops are the stops that have begun, by container id: they go on whatever else is decided.
	Stops map[string]ContainerStop
	// Backoff is the crash back-off by container name.
	Backoff map[string]Backoff
	// RestartFloor is the least next attempt by container name, for records that the runtime no longer has ([RestartFloors]).
	RestartFloor map[string]uint32
	// Ended are the exit codes of app containers that are known to have ended, for records that the runtime no longer has ([Ended]).
	Ended map[string]int32
	// InitializedIn is the sandbox in which the pod's initialisation was seen to be complete; it stands in for records that are gone.
	InitializedIn string
	// Condemned are the ids of containers that were killed to be started again: they are, whatever they ended with.
	Condemned map[string]bool
	// RestartingAll says that all containers are being ended and removed, to start again (KEP-5532).
	RestartingAll bool
	// Hold keeps the containers from starting again after that; nil where nothing does.
	Hold *Hold
	// Limits are the node's back-off limits.
	Limits BackoffLimits
	Now    time.Time
}
