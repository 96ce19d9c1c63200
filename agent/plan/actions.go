package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Kind says which of a pod's lists a container stands in.
type Kind string

// The kinds, in the order in which they start.
const (
	Init      Kind = "init"
	App       Kind = "app"
	Ephemeral Kind = "ephemeral"
)

// Start asks for a new incarnation of a container.
type Start struct {
	Container *v1.Container
	Kind      Kind
	// Attempt is the incarnation's number and the restart count it is made with.
	Attempt uint32
	// Previous is the ended incarnation after which it is a restart, and whose crash back-off it counts towards; nil for the first one, and for an
	// init container that runs anew because the sandbox is new.
	Previous *Container
}

// KillReason says why a running container has to stop.
type KillReason string

// The reasons for stopping a container of a pod that goes on.
const (
	KillChanged  KillReason = "changed"
	KillLiveness KillReason = "liveness"
	KillStartup  KillReason = "startup"
	KillUnknown  KillReason = "unknown"
	KillResize   KillReason = "resize"
	// KillStray stops what should not run beside the rest: an older instance of a container, or one in a sandbox that is not in use.
	KillStray KillReason = "stray"
	// KillPod stops a container because its pod ends, or because its sandbox does.
	KillPod KillReason = "pod"
	// KillBegun goes on with a stop that has begun, for whatever reason: there is no way back from it.
	KillBegun KillReason = "begun"
	// KillRestartAll stops a container because all of its pod's start again: without a hook, and within the least grace.
	KillRestartAll KillReason = "restartAll"
)

// Kill asks for a running container to be stopped.
type Kill struct {
	Container *Container
	// Spec is the container's spec; nil where the pod no longer has one.
	Spec    *v1.Container
	Reason  KillReason
	Message string
	// Grace is the probe's own grace period in seconds, nil for the pod's.
	Grace *int64
	// Held says that others have to end before this one may get its signal, as long as it has any grace left. Its preStop hook runs now.
	Held bool
	// Again says that the container is to start again, whatever it ends with.
	Again bool
}

// Wait says that a container waits for a time before it may start.
type Wait struct {
	Name    string
	Until   time.Time
	Delay   time.Duration
	Attempt uint32
}

// Actions is what a pod needs now. Steps read their own part of it.
type Actions struct {
	// CreateSandbox asks for a new sandbox with SandboxAttempt, after everything in StopSandboxes has been stopped.
	CreateSandbox  bool
	SandboxAttempt uint32
	// SandboxChanged says that an earlier sandbox existed and was lost or is out of date.
	SandboxChanged bool
	// SandboxID is the sandbox to use; empty with CreateSandbox.
	SandboxID string
	// StopSandboxes are sandboxes whose containers have all ended and that must be stopped. Those that are not ready are among them: the
	// runtime cannot be seen to have given back their network, and stopping twice is nothing.
	StopSandboxes []string
	// RemoveSandboxes are stopped sandboxes that no longer matter.
	RemoveSandboxes []string
	// Start are the containers to start now, in order.
	Start []Start
	// Kill are the containers to stop now, all at once, those whose stop has begun and goes on among them. With neither CreateSandbox nor a SandboxID it is
	// all that there is to do.
	Kill []Kill
	// RemoveContainers are incarnations that no longer matter, or were created and never started.
	RemoveContainers []*Container
	// Wait are the containers held back by their crash back-off.
	Wait []Wait
	// RestartAll says that all containers are being ended and removed; then there is nothing else to do but Kill and RemoveContainers, and RestartedBy is
	// the container that asked for it, where its record is still there.
	RestartAll  bool
	RestartedBy *Container
	// Initialized is true once no init container is left to run in the sandbox.
	Initialized bool
	// Finished is true when nothing of the pod will ever run again: its phase is terminal, and it has to be taken down. What still runs (sidecars,
	// ephemeral containers) is DecideStop's to end; nothing is to be started or created.
	Finished bool
	// Stopped is set by DecideStop once no container runs, no sandbox is ready and nothing is busy.
	Stopped bool
}
