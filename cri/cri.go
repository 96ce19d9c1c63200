// Package cri is the contract between the agent and a container runtime: CRI v1, as Go methods.
//
// Purpose: one interface, [Runtime], that every runtime implementation satisfies (cri/remote over a
// CRI socket, cri/fake in memory) and that cri/suite tests. It also has what some runtimes do
// beyond the CRI ([Capabilities]), the labels and annotations by which a kubelet and berth identify
// their pods ([SandboxLabels], [ContainerLabels], [ContainerAnnotations]), and the paths of
// container logs.
//
// Truth owned: how a pod's identity is written into the runtime and read back. The runtime itself
// owns which sandboxes and containers exist.
//
// Concurrency: everything here is pure, and every implementation of [Runtime] is safe for
// concurrent use.
package cri

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DefaultRequestTimeout is the default of KubeletConfiguration.runtimeRequestTimeout.
const DefaultRequestTimeout = 2 * time.Minute

// Runtime is CRI v1 as berth uses it. Messages are the CRI's own, so nothing is translated twice.
//
// The implementation classifies errors once, with github.com/containerd/errdefs. Callers use
// errdefs.IsNotFound, IsUnavailable, IsNotImplemented, IsDeadlineExceeded, IsCanceled,
// IsAlreadyExists or IsFailedPrecondition, and never look at gRPC codes or texts. Stopping or
// removing what does not exist succeeds. Every call obeys its context. If the context has no
// deadline, the implementation adds one (the config's runtimeRequestTimeout), except to PullImage
// and Events.
type Runtime interface {
	SandboxRuntime
	ContainerRuntime
	StreamRuntime
	ImageRuntime

	// Version returns the runtime's name and versions.
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	// Status returns the runtime's conditions (RuntimeReady, NetworkReady), handlers and features;
	// with verbose also its own config.
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
	// RuntimeConfig returns the runtime's cgroup driver. It returns errdefs.IsNotImplemented on
	// runtimes older than containerd 2.0.
	RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error)
	// UpdateRuntimeConfig gives the runtime what it needs to know of the node: the range of the
	// pods' addresses. The same range again changes nothing.
	UpdateRuntimeConfig(ctx context.Context, config *runtimeapi.RuntimeConfig) error
	// Events returns a stream of container and sandbox changes. The channel is closed when the
	// stream breaks or ctx ends. The caller then lists everything, and subscribes again. An event
	// is a hint to look, never a fact: it may be lost, late, doubled or out of order.
	Events(ctx context.Context) (<-chan Event, error)
}

// SandboxRuntime is the life of pod sandboxes.
type SandboxRuntime interface {
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (id string, err error)
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
}

// ContainerRuntime is the life of containers.
type ContainerRuntime interface {
	CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig,
		sandbox *runtimeapi.PodSandboxConfig) (id string, err error)
	StartContainer(ctx context.Context, id string) error
	// StopContainer sends the stop signal, and SIGKILL after grace (whole seconds, rounded up). It
	// returns when the container has ended.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error
	ReopenContainerLog(ctx context.Context, id string) error
	// CheckpointContainer writes the state of a running container into an archive at an absolute
	// path on the runtime's host. timeout 0 leaves the timeout to the runtime. It returns
	// errdefs.IsNotImplemented if the runtime has no checkpoints.
	CheckpointContainer(ctx context.Context, id, location string, timeout time.Duration) error
	// ContainerStats and ListContainerStats wake the container's shim: call them only if somebody
	// asked for the numbers.
	ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error)
	ListContainerStats(ctx context.Context,
		filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error)
}

// StreamRuntime runs commands in containers and opens streams to them.
type StreamRuntime interface {
	// ExecSync runs a command and returns its output and exit code. A command that ran and failed
	// is not an error. timeout 0 means none.
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error)
	// Exec, Attach and PortForward return the URL of a stream on the runtime's streaming server.
	Exec(ctx context.Context, req *runtimeapi.ExecRequest) (url string, err error)
	Attach(ctx context.Context, req *runtimeapi.AttachRequest) (url string, err error)
	PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (url string, err error)
}

// ImageRuntime is the runtime's image store.
type ImageRuntime interface {
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	// ImageStatus returns nil without an error if the image does not exist.
	ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig,
		sandbox *runtimeapi.PodSandboxConfig) (ref string, err error)
	RemoveImage(ctx context.Context, spec *runtimeapi.ImageSpec) error
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// EventType is the type of an [Event].
type EventType int

// The types mirror the CRI's ContainerEventType.
const (
	ContainerCreated EventType = iota
	ContainerStarted
	ContainerStopped
	ContainerDeleted
)

// Event says that something about a container or a sandbox changed.
type Event struct {
	Type EventType
	// ID is the container's or the sandbox's ID.
	ID string
	// PodUID is the UID of the pod. Empty if the runtime does not report it (containerd before
	// 1.7).
	PodUID string
	// Time is when it happened, as the runtime reports it. Zero if the runtime does not report it.
	Time time.Time
	// Exit says how the container's main process ended, in a [ContainerStopped] that comes before
	// the runtime's lists show the end. Another such event, without Exit, follows when the lists
	// show it. Exit is nil if the runtime reports an exit only then.
	Exit *Exit
}

// Exit is how a container's main process ended.
type Exit struct {
	// Code is its exit code.
	Code int32
	// At is when it ended, by the runtime's clock.
	At time.Time
}
