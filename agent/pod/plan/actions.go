package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Kind says in which of a pod's lists a container is.
type Kind string

// The kinds, in the order in which they start.
const (
	Init      Kind = "init"
	App       Kind = "app"
	Ephemeral Kind = "ephemeral"
)

// Start asks for a new attempt of a container.
type Start struct {
	Container *v1.Container
	Kind      Kind
	// Attempt is the attempt's number, and the restart count that the attempt is made with.
	Attempt uint32
	// Previous is the ended attempt before this one, if the start is a restart that counts towards
	// the crash back-off. It is nil for the first attempt, and for an init container that runs anew
	// because the sandbox is new.
	Previous *Container
}

// KillReason says why a running container has to stop.
type KillReason string

// The reasons for stopping a running container.
const (
	KillChanged  KillReason = "changed"
	KillLiveness KillReason = "liveness"
	KillStartup  KillReason = "startup"
	KillUnknown  KillReason = "unknown"
	KillResize   KillReason = "resize"
	// KillAsked stops a container because an operator asked for its restart.
	KillAsked KillReason = "asked"
	// KillStale stops a stale container: an older attempt beside a newer one, or one in a sandbox
	// that is not in use.
	KillStale KillReason = "stale"
	// KillPod stops a container because its pod ends, or because its sandbox does.
	KillPod KillReason = "pod"
	// KillBegun goes on with a stop that has begun, for whatever reason. A stop that has begun is
	// never taken back.
	KillBegun KillReason = "begun"
	// KillRestartAll stops a container because all of its pod's containers start again: without a
	// hook, and within the least grace.
	KillRestartAll KillReason = "restartAll"
)

// Kill asks for a running container to be stopped.
type Kill struct {
	Container *Container
	// Spec is the container's spec, nil if the pod no longer has one.
	Spec    *v1.Container
	Reason  KillReason
	Message string
	// Grace is the grace period in seconds of the probe or of the operator's request, nil for the
	// pod's.
	Grace *int64
	// Held says that other containers have to end before this one may get its signal, as long as it
	// has any grace left. Its preStop hook runs now.
	Held bool
	// Again says that the container is to start again, whatever it ends with.
	Again bool
}

// Wait says that a container waits until a time before it may start.
type Wait struct {
	Name    string
	Until   time.Time
	Delay   time.Duration
	Attempt uint32
}

// Actions is what a pod needs now. Each step reads its own part.
type Actions struct {
	// CreateSandbox asks for a new sandbox with SandboxAttempt, after everything in StopSandboxes
	// has been stopped.
	CreateSandbox  bool
	SandboxAttempt uint32
	// SandboxChanged says that an earlier sandbox existed and was lost or is out of date.
	SandboxChanged bool
	// SandboxID is the sandbox to use. It is empty with CreateSandbox.
	SandboxID string
	// StopSandboxes are sandboxes that must be stopped; their containers have all ended. Sandboxes
	// that are not ready are among them: nothing shows whether the runtime has given back their
	// network, and stopping a sandbox twice does no harm.
	StopSandboxes []string
	// RemoveSandboxes are stopped sandboxes that no longer matter.
	RemoveSandboxes []string
	// Start are the containers to start now, in order.
	Start []Start
	// Kill are the containers to stop now, all at once. Stops that have begun and go on are among
	// them. With neither CreateSandbox nor a SandboxID there is nothing else to do.
	Kill []Kill
	// RemoveContainers are attempts that no longer matter, or that were created and never started.
	RemoveContainers []*Container
	// TidyAt is when to decide again about ended attempts that are too young to be removed; zero
	// for none.
	TidyAt time.Time
	// Wait are the containers held back by their crash back-off.
	Wait []Wait
	// RestartAll says that all containers are being ended and removed. Then there is nothing else
	// to do but Kill and RemoveContainers. RestartedBy is the container that asked for it, if the
	// runtime still has its record.
	RestartAll  bool
	RestartedBy *Container
	// Initialized is true once no init container is left to run in the sandbox.
	Initialized bool
	// Finished is true when nothing of the pod will ever run again: its phase is terminal, and it
	// has to be taken down. Nothing is to be started or created. [DecideStop] ends what still runs
	// (sidecars, ephemeral containers).
	Finished bool
	// Stopped is set by DecideStop once no container runs, no sandbox is ready and nothing is busy.
	Stopped bool
}
