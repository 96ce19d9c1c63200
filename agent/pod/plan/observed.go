package plan

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Container is one attempt of a container as the runtime reports it.
type Container struct {
	*runtimeapi.ContainerStatus
	// SandboxID is the sandbox that the container was made in. A container of an earlier sandbox
	// says nothing about the initialisation of this one.
	SandboxID string
	// Hash is the hash of the spec that the container was made from, from the container's
	// annotations.
	Hash string
}

// Name returns the container's name in the pod.
func (c *Container) Name() string { return c.GetMetadata().GetName() }

// Attempt returns the attempt's number, which is the restart count that it was made with.
func (c *Container) Attempt() uint32 { return c.GetMetadata().GetAttempt() }

// Running reports whether the container's process may be running. An unknown state counts, because
// two attempts must never run at once.
func (c *Container) Running() bool {
	return c.State == runtimeapi.ContainerState_CONTAINER_RUNNING || c.Unknown()
}

// Created reports whether the container was made and never started: the sync ended before the
// start, or the start failed.
func (c *Container) Created() bool { return c.State == runtimeapi.ContainerState_CONTAINER_CREATED }

// Unknown reports whether the runtime lost track of it.
func (c *Container) Unknown() bool { return c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN }

// Exited reports whether the container's process ran and ended.
func (c *Container) Exited() bool { return c.State == runtimeapi.ContainerState_CONTAINER_EXITED }

// Observed is what the runtime has of one pod.
type Observed struct {
	// Sandboxes are the pod's sandboxes, the latest attempt first.
	Sandboxes []*runtimeapi.PodSandboxStatus
	// Containers are all attempts of all of the pod's containers, the latest attempt of each name
	// first.
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

// Latest returns the latest attempt of the named container, nil if there is none.
func (o *Observed) Latest(name string) *Container {
	for _, c := range o.Containers {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// lastEnded returns the latest attempt of the named container that ran and ended, nil if there is
// none.
func (o *Observed) lastEnded(name string) *Container {
	for _, c := range o.Containers {
		if c.Name() == name && c.Exited() {
			return c
		}
	}
	return nil
}

// Sandbox returns the latest sandbox, nil if there is none.
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
	// ContainerID is the attempt that was probed.
	ContainerID string
	// Started is true once the startup probe succeeded. It is true at once if there is no startup
	// probe.
	Started bool
	// Failed names the probe that wants the container killed, "Liveness" or "Startup"; empty for
	// none.
	Failed string
}

// Operation is something under way on a container that the worker started and that has not
// finished.
type Operation string

// The operations that hold back decisions about a container.
const (
	Stopping  Operation = "stopping"
	PostStart Operation = "postStart"
)

// Hold is the crash back-off that a restart of all containers waits for.
type Hold struct {
	// Until is when the first container may start. Delay is the back-off that Until comes from. By
	// is the container that asked for the restart.
	Until time.Time     `json:"until"`
	Delay time.Duration `json:"delay"`
	By    string        `json:"by"`
}

// Input is all that a decision may depend on.
type Input struct {
	Pod      *v1.Pod
	Observed Observed
	// Hash returns the hash of a container's spec (cri.ContainerHash).
	Hash func(*v1.Container) string
	// Probes are the probes' results by container name.
	Probes map[string]ProbeState
	// Busy are the operations under way, by container id.
	Busy map[string]Operation
	// Resize are the ids of running containers whose new resources need a restart (resizePolicy
	// RestartContainer).
	Resize map[string]bool
	// Asked are the restarts that an operator asked for, by the id of the attempt that ends, or has
	// ended, for the restart.
	Asked map[string]AskedRestart
	// Stops are the stops that have begun, by container id. They go on whatever else is decided.
	Stops map[string]ContainerStop
	// Backoff is the crash back-off by container name.
	Backoff map[string]Backoff
	// RestartFloor is the least next attempt by container name, for records that the runtime no
	// longer has ([RestartFloors]).
	RestartFloor map[string]uint32
	// Ended are the exit codes of app containers that are known to have ended, for records that the
	// runtime no longer has ([Ended]).
	Ended map[string]int32
	// InitializedIn is the sandbox in which the pod's initialisation was seen to be complete. It
	// counts even if the records of the init containers are gone.
	InitializedIn string
	// KilledToRestart has the ids of containers that were killed to start again. They start again
	// whatever they ended with.
	KilledToRestart map[string]bool
	// RestartingAll says that all containers are being ended and removed, to start again
	// (KEP-5532).
	RestartingAll bool
	// Hold keeps the containers from starting again after a restart of all, nil if nothing does.
	Hold *Hold
	// Limits are the node's back-off limits. Dead says which ended attempts are kept.
	Limits BackoffLimits
	Dead   DeadLimits
	Now    time.Time
}
