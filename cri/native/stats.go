package native

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// layerAge is for how long what a container has written counts as measured, as in containerd's CRI
// plugin: the snapshotter has to look at every file.
const layerAge = 10 * time.Second

// measuredLayer is what a container had written when it was measured. Nobody changes the message.
type measuredLayer struct {
	usage *runtimeapi.FilesystemUsage
	at    time.Time
}

// ContainerStats implements [cri.ContainerRuntime]. A container that does not run has no CPU and
// memory in its stats.
func (r *Runtime) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	c, err := r.store.container(id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	out := statsOf(c)
	if out.WritableLayer, err = r.layer(ctx, c); err != nil {
		return nil, fmt.Errorf("measure what container %s has written: %w", id, err)
	}
	if err := r.measure(ctx, []*container{c}, []*runtimeapi.ContainerStats{out}); err != nil {
		return nil, fmt.Errorf("measure container %s: %w", id, err)
	}
	return out, nil
}

// ListContainerStats implements [cri.ContainerRuntime]. Of a container that cannot be measured, as
// while it ends, a part of the stats is missing: the others have theirs.
func (r *Runtime) ListContainerStats(
	ctx context.Context, filter *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	var list []*container
	var out []*runtimeapi.ContainerStats
	for _, c := range r.store.containersOf(filter.GetPodSandboxId()) {
		if filter.GetId() != "" && filter.GetId() != c.id || !selects(filter.GetLabelSelector(), c.config.GetLabels()) {
			continue
		}
		one := statsOf(c)
		layer, err := r.layer(ctx, c)
		if err != nil {
			r.cfg.Logger.Debug("what a container has written cannot be measured now", "container", c.id, "error", err)
		}
		one.WritableLayer = layer
		list, out = append(list, c), append(out, one)
	}
	if err := r.measure(ctx, list, out); err != nil {
		return nil, fmt.Errorf("measure the containers: %w", err)
	}
	return out, nil
}

func statsOf(c *container) *runtimeapi.ContainerStats {
	return &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{
		Id: c.id, Metadata: c.config.GetMetadata(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
	}}
}

// layer returns what a container has written, not older than [layerAge]. It is nil if the container
// has no snapshot.
func (r *Runtime) layer(ctx context.Context, c *container) (*runtimeapi.FilesystemUsage, error) {
	c.mu.Lock()
	known := c.layer
	c.mu.Unlock()
	if known.usage != nil && time.Since(known.at) < layerAge {
		return known.usage, nil
	}
	usage, err := r.Layer(ctx, c.id)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.layer = measuredLayer{usage: usage, at: time.Now()}
	return usage, nil
}

// measure sets the CPU and the memory in the stats of those containers that run, by one request.
// containerd answers nothing of a container that is just ending.
func (r *Runtime) measure(ctx context.Context, list []*container, out []*runtimeapi.ContainerStats) error {
	running := map[string]*runtimeapi.ContainerStats{}
	request := &tasksapi.MetricsRequest{}
	for i, c := range list {
		if _, err := c.running(); err == nil {
			running[c.id] = out[i]
			request.Filters = append(request.Filters, "id=="+c.id)
		}
	}
	if len(running) == 0 {
		return nil // without a filter, containerd would measure all
	}
	answer, err := r.client.TaskService().Metrics(ctx, request)
	if err != nil {
		return errgrpc.ToNative(err)
	}
	for _, metric := range answer.GetMetrics() {
		one := running[metric.GetID()]
		data, err := typeurl.UnmarshalAny(metric.GetData())
		if err != nil || one == nil {
			r.cfg.Logger.Debug("a container cannot be measured now", "container", metric.GetID(), "error", err)
			continue
		}
		switch m := data.(type) {
		case *v1.Metrics:
			measuredV1(one, m)
		case *v2.Metrics:
			measuredV2(one, m)
		}
	}
	return nil
}

func value(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }

// workingSet is what cannot be taken from a container without pressure, as the kubelet computes it.
func workingSet(usage, inactiveFile uint64) *runtimeapi.UInt64Value {
	return value(usage - min(usage, inactiveFile))
}

func measuredV1(out *runtimeapi.ContainerStats, m *v1.Metrics) {
	now, memory := time.Now().UnixNano(), m.GetMemory()
	out.Cpu = &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: value(m.GetCPU().GetUsage().GetTotal())}
	out.Memory = &runtimeapi.MemoryUsage{
		Timestamp:       now,
		WorkingSetBytes: workingSet(memory.GetUsage().GetUsage(), memory.GetTotalInactiveFile()),
		UsageBytes:      value(memory.GetUsage().GetUsage()), RssBytes: value(memory.GetTotalRSS()),
		PageFaults: value(memory.GetTotalPgFault()), MajorPageFaults: value(memory.GetTotalPgMajFault()),
	}
}

func measuredV2(out *runtimeapi.ContainerStats, m *v2.Metrics) {
	now, memory := time.Now().UnixNano(), m.GetMemory()
	out.Cpu = &runtimeapi.CpuUsage{
		Timestamp: now, UsageCoreNanoSeconds: value(m.GetCPU().GetUsageUsec() * uint64(time.Microsecond)),
	}
	out.Memory = &runtimeapi.MemoryUsage{
		Timestamp: now, WorkingSetBytes: workingSet(memory.GetUsage(), memory.GetInactiveFile()),
		UsageBytes: value(memory.GetUsage()), RssBytes: value(memory.GetAnon()),
		PageFaults: value(memory.GetPgfault()), MajorPageFaults: value(memory.GetPgmajfault()),
	}
	out.Swap = &runtimeapi.SwapUsage{Timestamp: now, SwapUsageBytes: value(memory.GetSwapUsage())}
}
