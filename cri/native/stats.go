package native

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerStats implements [cri.ContainerRuntime]. A container that does not run has no CPU and
// memory in its stats.
func (r *Runtime) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	c, err := r.store.container(id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	return r.stats(ctx, c)
}

// ListContainerStats implements [cri.ContainerRuntime].
func (r *Runtime) ListContainerStats(
	ctx context.Context, filter *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	var out []*runtimeapi.ContainerStats
	for _, c := range r.store.containersOf(filter.GetPodSandboxId()) {
		if filter.GetId() != "" && filter.GetId() != c.id || !selects(filter.GetLabelSelector(), c.config.GetLabels()) {
			continue
		}
		one, err := r.stats(ctx, c)
		if errdefs.IsNotFound(err) {
			continue // it has just been removed
		}
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

func (r *Runtime) stats(ctx context.Context, c *container) (*runtimeapi.ContainerStats, error) {
	out := &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{
		Id: c.id, Metadata: c.config.GetMetadata(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
	}}
	layer, err := r.Layer(ctx, c.id)
	if err != nil {
		return nil, fmt.Errorf("measure what container %s has written: %w", c.id, err)
	}
	out.WritableLayer = layer
	task, err := c.running()
	if err != nil {
		return out, nil //nolint:nilerr // it does not run
	}
	metric, err := task.Metrics(ctx)
	if errdefs.IsNotFound(err) {
		return out, nil // it has just ended
	}
	if err != nil {
		return nil, fmt.Errorf("measure container %s: %w", c.id, err)
	}
	data, err := typeurl.UnmarshalAny(metric.GetData())
	if err != nil {
		return nil, fmt.Errorf("measure container %s: %w", c.id, err)
	}
	switch m := data.(type) {
	case *v1.Metrics:
		measuredV1(out, m)
	case *v2.Metrics:
		measuredV2(out, m)
	}
	return out, nil
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
