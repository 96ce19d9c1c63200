// Package cri is the contract between the agent and a container runtime: CRI v1, as Go methods.
//
// Purpose: one interface, [Runtime], that every runtime implementation satisfies (cri/remote over a CRI socket, cri/fake in
// memory) and that cri/suite proves; the labels and annotations by which a kubelet and berth recognise their pods ([Labels] and
// friends); and the paths of container logs.
//
// Truth owned: how a pod's identity is written into the runtime and read back. The runtime itself owns which sandboxes and
// containers exist.
//
// Concurrency: everything here is pure, and every implementation of [Runtime] is safe for concurrent use.
package cri

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is CRI v1 as berth uses it. Messages are the CRI's own, so nothing is translated twice.
//
// Errors are classified once, by the implementation, with github.com/containerd/errdefs: callers ask errdefs.IsNotFound,
// IsUnavailable, IsNotImplemented, IsDeadlineExceeded, IsCanceled, IsAlreadyExists or IsFailedPrecondition and never look at gRPC codes or
// texts. Stopping or removing what does not exist succeeds. Every call honours its context; an implementation adds a deadline
// of its own (the config's runtimeRequestTimeout) to calls whose context has none, except PullImage and Events.
type Runtime interface {
	SandboxRuntime
	ContainerRuntime
	StreamRuntime
	ImageRuntime

	// Version returns the runtime's name and versions.
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	// Status returns the runtime's conditions (RuntimeReady, NetworkReady), handlers and features; with verbose also its own config.
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
	// RuntimeConfig returns the runtime's cgroup driver; errdefs.IsNotImplemented on runtimes older than containerd 2.0.
	RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error)
	// UpdateRuntimeConfig tells the runtime what it has to know of the node: the range of the pods' addresses. The same again is nothing.
	UpdateRuntimeConfig(ctx context.Context, config *runtimeapi.RuntimeConfig) error
	// Events returns a stream of container and sandbox changes. The channel is closed when the stream breaks or ctx ends; the caller then lists
	// everything, and subscribes again. An event is a hint to look, never a fact: it may be lost, late, doubled or out of order.
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
	CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) (id string, err error)
	StartContainer(ctx context.Context, id string) error
	// StopContainer sends the stop signal, and SIGKILL after grace (whole seconds, rounded up). It returns when the container has ended.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error
	ReopenContainerLog(ctx context.Context, id string) error
	// CheckpointContainer writes the state of a running container into an archive at a path, an absolute one on the runtime's host. timeout 0 leaves it to the
	// runtime. errdefs.IsNotImplemented where the runtime has no checkpoints.
	CheckpointContainer(ctx context.Context, id, location string, timeout time.Duration) error
	// ContainerStats and ListContainerStats wake the container's shim: call them only when somebody asked.
	ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error)
	ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error)
}

// StreamRuntime runs commands in containers and opens streams to them.
type StreamRuntime interface {
	// ExecSync runs a command and returns its output and exit code. A command that ran and failed is not an error. timeout 0 means none.
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error)
	// Exec, Attach and PortForward return the URL of a stream on the runtime's streaming server.
	Exec(ctx context.Context, req *runtimeapi.ExecRequest) (url string, err error)
	Attach(ctx context.Context, req *runtimeapi.AttachRequest) (url string, err error)
	PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (url string, err error)
}

// ImageRuntime is the runtime's image store.
type ImageRuntime interface {
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	// ImageStatus returns nil without an error when the image is not there.
	ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (ref string, err error)
	RemoveImage(ctx context.Context, spec *runtimeapi.ImageSpec) error
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// EventType says what an [Event] is about.
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
	// ID is the container's or the sandbox's id.
	ID string
	// PodUID is the pod it belongs to; empty where the runtime does not say (containerd before 1.7).
	PodUID string
	// Time is when the runtime says it happened; zero where it does not.
	Time time.Time
	// Exit tells, of a [ContainerStopped] that comes before the runtime's lists show it, how the container's main process ended. Another such event,
	// without it, follows once they do. It is nil where the runtime tells of an exit only then.
	Exit *Exit
}

// Exit is how a container's main process ended.
type Exit struct {
	// Code is its exit code.
	Code int32
	// At is when it ended, by the runtime's clock.
	At time.Time
}
