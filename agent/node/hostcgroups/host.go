// Package hostcgroups has the cgroups of this machine's pods, as the config and the runtime want
// them.
//
// Purpose: the runtime decides which cgroup driver counts. So the manager of package cgroups can
// only be made once the runtime answers.
//
// Truth owned: none; the kernel owns it. Concurrency: a [Host] is safe for concurrent use after
// [Host.Setup].
package hostcgroups

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/node/stats"
	"github.com/berthd/berth/cgroups"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/retry"
)

// Deps are the things with which the host's cgroups are made.
type Deps struct {
	Config *configs.Config
	// Runtime is asked for its cgroup driver.
	Runtime interface {
		RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error)
	}
	// Capacity is the node's capacity, and Enforced the limit of all pods together.
	Capacity, Enforced v1.ResourceList
	// Reserved are the amounts that the pods do not get.
	Reserved Reserved
	// Swap is how much the machine can swap out, in bytes.
	Swap int64
	// Observe is called after each operation on a cgroup (create, update, destroy) with how long it
	// took.
	Observe func(operation string, took time.Duration)
	// Event records an event about the node.
	Event func(kind, reason, message string)
	// Claim takes a directory of the cgroup that holds all pods for this agent alone.
	Claim  func(dir string) error
	Logger *slog.Logger
}

// Host makes the machine's cgroup manager once the runtime has said which driver it uses. Make it
// with [New].
type Host struct {
	*cgroups.Manager
	deps Deps
	// pinned is what SetPinned got.
	pinned func(pod *v1.Pod, c *v1.Container) bool
	// ready says that the node's cgroups are set up.
	ready atomic.Bool
}

// New returns the cgroups of this machine, which can be used after [Host.Setup].
func New(deps Deps) *Host { return &Host{deps: deps} }

// SetPinned says who has CPUs for himself: a container or, with nil, a whole pod. Under the feature
// gate DisableCPUQuotaWithExclusiveCPUs, no quota limits these. SetPinned comes before
// [Host.Setup].
func (h *Host) SetPinned(pinned func(pod *v1.Pod, c *v1.Container) bool) { h.pinned = pinned }

// Setup waits for the runtime, makes the manager, and sets up the node's cgroups.
func (h *Host) Setup(ctx context.Context) error {
	driver, err := h.driver(ctx)
	if err != nil {
		return err
	}
	k := &h.deps.Config.Kubelet
	config := cgroups.Config{
		Driver: driver, Root: k.CgroupRoot, CgroupsPerQOS: k.CgroupsPerQOS == nil || *k.CgroupsPerQOS,
		RefuseV1: k.FailCgroupV1 != nil && *k.FailCgroupV1,
		Options: cgroups.Options{
			CPUQuota:             k.CPUCFSQuota == nil || *k.CPUCFSQuota,
			SingleProcessOOMKill: k.SingleProcessOOMKill,
			SwapAccounting:       cgroups.SwapAccounting(),
		},
	}
	if h.deps.Config.GateEnabled("DisableCPUQuotaWithExclusiveCPUs") {
		config.Options.WithoutQuota = h.pinned
	}
	if k.MemorySwap.SwapBehavior == "LimitedSwap" {
		config.Options.Swap, config.Options.StaticCritical = h.deps.Swap, h.deps.Config.Kubeconfig != ""
	}
	if h.deps.Config.GateEnabled("MemoryQoS") {
		config.Options.Throttle = &cgroups.Throttle{
			Factor: *k.MemoryThrottlingFactor, Allocatable: h.deps.Enforced.Memory().Value(),
		}
	}
	if k.CPUCFSQuotaPeriod != nil {
		config.Options.CPUPeriod = k.CPUCFSQuotaPeriod.Duration
	}
	if k.PodPidsLimit != nil {
		config.Options.PodPids = *k.PodPidsLimit
	}
	for _, e := range k.EnforceNodeAllocatable {
		if e == "pods" && len(h.deps.Reserved.System)+len(h.deps.Reserved.Kube) > 0 {
			config.Allocatable = h.deps.Enforced
		}
	}
	limited := func(err error) { h.limited(config, err) }
	if h.Manager, err = cgroups.New(config, cgroups.Deps{
		Logger: h.deps.Logger, NodeLimited: limited, Observe: h.deps.Observe, Claim: h.deps.Claim,
	}); err != nil {
		return err
	}
	if h.Version() != cgroups.V2 {
		h.deps.Event(v1.EventTypeWarning, "CgroupV1", cgroupV1)
	}
	if err := h.Manager.Setup(ctx); err != nil {
		return err
	}
	if err := h.reserve(h.Manager); err != nil {
		return err
	}
	h.ready.Store(true)
	return nil
}

// Stats returns the reader of the cgroups' usage; nil until the cgroups are set up.
func (h *Host) Stats() stats.Cgroups {
	if !h.ready.Load() {
		return nil
	}
	return h.Manager
}

// cgroupV1 is the message of a node on cgroup v1, in the kubelet's words.
const cgroupV1 = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. " +
	"Please " +
	"migrate to cgroup v2. " +
	"More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"

// limited reports by an event whether the limits of all pods together are in force.
func (h *Host) limited(config cgroups.Config, err error) {
	if err != nil {
		pods := cgroups.Layout{Driver: config.Driver, Root: config.Root}.PodsPath()
		h.deps.Event(v1.EventTypeWarning, "FailedNodeAllocatableEnforcement",
			fmt.Sprintf("Failed to update Node Allocatable Limits %q: %v", pods, err))
		return
	}
	h.deps.Event(v1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
}

// driver asks the runtime for its cgroup driver until the runtime answers. If the runtime does not
// know its driver, the config's driver counts.
func (h *Host) driver(ctx context.Context) (cgroups.Driver, error) {
	configured := cgroups.Driver(h.deps.Config.Kubelet.CgroupDriver)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		resp, err := h.deps.Runtime.RuntimeConfig(ctx)
		switch {
		case err == nil && resp.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD:
			return h.agree(configured, cgroups.Systemd), nil
		case err == nil && resp.GetLinux() != nil:
			return h.agree(configured, cgroups.Cgroupfs), nil
		case err == nil || errdefs.IsNotImplemented(err):
			return configured, nil
		case ctx.Err() != nil:
			return "", fmt.Errorf("waiting for the runtime: %w", context.Cause(ctx))
		}
		if wait == 50*time.Millisecond {
			h.deps.Logger.Warn("the container runtime does not answer; waiting for it",
				"endpoint", h.deps.Config.Kubelet.ContainerRuntimeEndpoint, "err", err)
		}
		if !retry.Sleep(ctx, wait) {
			return "", fmt.Errorf("waiting for the runtime: %w", context.Cause(ctx))
		}
	}
}

// agree warns if the config names another driver than the runtime's. The runtime's driver counts.
func (h *Host) agree(configured, runtimes cgroups.Driver) cgroups.Driver {
	if configured != runtimes && h.deps.Config.IsSet("cgroupDriver") {
		h.deps.Logger.Warn("config: cgroupDriver differs from the runtime's, which counts", "cgroupDriver", configured,
			"runtime", runtimes)
	}
	return runtimes
}

// Teardown removes the node's cgroups, if Setup has made the manager.
func (h *Host) Teardown(ctx context.Context) error {
	if h.Manager == nil {
		return nil
	}
	return h.Manager.Teardown(ctx)
}

// SandboxResources returns a pod's resources and overhead for its sandbox's config.
func (h *Host) SandboxResources(pod *v1.Pod) (resources, overhead *runtimeapi.LinuxContainerResources) {
	return cgroups.SandboxResources(pod, h.Options())
}

// ContainerResources returns a container's cgroup settings.
func (h *Host) ContainerResources(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	return cgroups.ContainerResources(pod, c, h.deps.Capacity.Memory().Value(), h.Options())
}
