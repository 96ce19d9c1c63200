package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/metrics"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/oom"
	"github.com/berthd/berth/agent/tasks"
	"github.com/berthd/berth/agent/tracing"
	"github.com/berthd/berth/cgroups"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/remote"
)

// Assemble makes an agent for this machine from its config: the runtime behind the CRI socket, the machine's cgroups, its node facts. It takes the lock of the
// root directory, so that no second agent works on the same pods. closeAll gives everything back after Run has returned.
func Assemble(ctx context.Context, cfg *configs.Config, version string, log *slog.Logger) (a *Agent, closeAll func(), err error) {
	if cfg.Berth.Runtime == configs.RuntimeNative {
		return nil, nil, errors.New("berth: runtime: native is not there yet: set it to auto or remote, and containerRuntimeEndpoint to a CRI socket")
	}
	n, err := node.New(cfg, log)
	if err != nil {
		return nil, nil, err
	}
	if err := checkSwap(cfg, "/proc/swaps"); err != nil {
		return nil, nil, err
	}
	unlock, err := lock(cfg)
	if err != nil {
		return nil, nil, err
	}
	set := metrics.New(n.Name, version)
	traces, err := tracing.New(ctx, cfg.Kubelet.Tracing, n.Name, log)
	if err != nil {
		unlock()
		return nil, nil, err
	}
	conn, rotators, err := connect(cfg, n, version, set, traces, log)
	if err != nil {
		unlock()
		return nil, nil, errors.Join(err, traces.Close(ctx))
	}
	rt, err := remote.Dial(ctx, remote.Config{
		Endpoint: cfg.Kubelet.ContainerRuntimeEndpoint, ImageEndpoint: cfg.Kubelet.ImageServiceEndpoint,
		RequestTimeout: cfg.Kubelet.RuntimeRequestTimeout.Duration, Logger: log, Observe: set.Operation, Options: traces.DialOptions(),
	})
	if err != nil {
		unlock()
		return nil, nil, errors.Join(err, traces.Close(ctx))
	}
	closeAll = func() {
		if err := rt.Close(); err != nil {
			log.Warn("connection to the runtime not closed", "err", err)
		}
		if err := traces.Close(ctx); err != nil {
			log.Warn("the last traces not sent", "err", err)
		}
		unlock()
	}
	groups := &hostCgroups{cfg: cfg, runtime: rt, capacity: n.Capacity(), allocatable: n.Enforced(), log: log}
	a, err = New(ctx, cfg, Deps{
		Runtime: rt, Importer: rt, Pin: rt.Pin, Progress: rt.PullProgress, Node: n, Conn: conn, Rotators: rotators, Metrics: set, Tracing: traces, Logger: log, KeepLogs: true, Plugins: true, KernelLog: oom.KernelLog,
		Cgroups: groups,
	})
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	groups.event = a.events.Node
	return a, closeAll, nil
}

// checkSwap refuses a host with swap where the config says so itself. Upstream's default says so for everybody; berth's pods get no swap either way, and a
// machine without a cluster usually has some.
func checkSwap(cfg *configs.Config, swaps string) error {
	if fail := cfg.Kubelet.FailSwapOn; fail == nil || !*fail || !cfg.IsSet("failSwapOn") {
		return nil
	}
	data, err := os.ReadFile(swaps)
	if err != nil {
		return fmt.Errorf("failSwapOn: looking for swap: %w", err)
	}
	if lines := strings.Split(strings.TrimSpace(string(data)), "\n"); len(lines) > 1 { // the first line is the heading
		return fmt.Errorf("failSwapOn: this host swaps to %s: switch it off with swapoff -a, or set failSwapOn: false", strings.Fields(lines[1])[0])
	}
	return nil
}

// hostCgroups makes the machine's cgroup manager once the runtime has said which driver it uses.
type hostCgroups struct {
	*cgroups.Manager
	cfg     *configs.Config
	runtime interface {
		RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error)
	}
	capacity, allocatable v1.ResourceList
	// event tells of the node's cgroups, as an event about it.
	event func(kind, reason, message string)
	log   *slog.Logger
}

// Setup waits for the runtime, makes the manager, and sets up the node's cgroups.
func (h *hostCgroups) Setup(ctx context.Context) error {
	driver, err := h.driver(ctx)
	if err != nil {
		return err
	}
	k := &h.cfg.Kubelet
	config := cgroups.Config{
		Driver: driver, Root: k.CgroupRoot, CgroupsPerQOS: k.CgroupsPerQOS == nil || *k.CgroupsPerQOS,
		RefuseV1: k.FailCgroupV1 != nil && *k.FailCgroupV1,
		Options: cgroups.Options{
			CPUQuota: k.CPUCFSQuota == nil || *k.CPUCFSQuota, SingleProcessOOMKill: k.SingleProcessOOMKill, SwapAccounting: cgroups.SwapAccounting(),
		},
	}
	if k.CPUCFSQuotaPeriod != nil {
		config.Options.CPUPeriod = k.CPUCFSQuotaPeriod.Duration
	}
	if k.PodPidsLimit != nil {
		config.Options.PodPids = *k.PodPidsLimit
	}
	for _, e := range k.EnforceNodeAllocatable {
		if e == "pods" && (len(k.SystemReserved) > 0 || len(k.KubeReserved) > 0) {
			config.Allocatable = h.allocatable
		}
	}
	limited := func(err error) { h.limited(config, err) }
	if h.Manager, err = cgroups.New(config, cgroups.Deps{Logger: h.log, NodeLimited: limited}); err != nil {
		return err
	}
	if h.Version() != cgroups.V2 {
		h.event(v1.EventTypeWarning, "CgroupV1", cgroupV1)
	}
	return h.Manager.Setup(ctx)
}

// cgroupV1 is what a node on cgroup v1 says of it, in the kubelet's words.
const cgroupV1 = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. Please migrate to cgroup v2. " +
	"More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"

// limited tells whether the limits of all pods together are in force.
func (h *hostCgroups) limited(config cgroups.Config, err error) {
	if err != nil {
		pods := cgroups.Layout{Driver: config.Driver, Root: config.Root}.PodsPath()
		h.event(v1.EventTypeWarning, "FailedNodeAllocatableEnforcement", fmt.Sprintf("Failed to update Node Allocatable Limits %q: %v", pods, err))
		return
	}
	h.event(v1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
}

// driver asks the runtime for its cgroup driver, as long as it does not answer; one that cannot say gets the config's.
func (h *hostCgroups) driver(ctx context.Context) (cgroups.Driver, error) {
	configured := cgroups.Driver(h.cfg.Kubelet.CgroupDriver)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		resp, err := h.runtime.RuntimeConfig(ctx)
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
			h.log.Warn("the container runtime does not answer; waiting for it", "endpoint", h.cfg.Kubelet.ContainerRuntimeEndpoint, "err", err)
		}
		if !tasks.Sleep(ctx, wait) {
			return "", fmt.Errorf("waiting for the runtime: %w", context.Cause(ctx))
		}
	}
}

// agree warns where the config names another driver than the runtime's, which counts.
func (h *hostCgroups) agree(configured, runtimes cgroups.Driver) cgroups.Driver {
	if configured != runtimes && h.cfg.IsSet("cgroupDriver") {
		h.log.Warn("config: cgroupDriver differs from the runtime's, which counts", "cgroupDriver", configured, "runtime", runtimes)
	}
	return runtimes
}

// Teardown removes the node's cgroups, if Setup came as far as making any.
func (h *hostCgroups) Teardown(ctx context.Context) error {
	if h.Manager == nil {
		return nil
	}
	return h.Manager.Teardown(ctx)
}

// SandboxResources returns a pod's resources and overhead for its sandbox's config.
func (h *hostCgroups) SandboxResources(pod *v1.Pod) (resources, overhead *runtimeapi.LinuxContainerResources) {
	return cgroups.SandboxResources(pod, h.Options())
}

// ContainerResources returns a container's cgroup settings.
func (h *hostCgroups) ContainerResources(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	return cgroups.ContainerResources(pod, c, h.capacity.Memory().Value(), h.Options())
}
