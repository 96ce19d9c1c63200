package fake

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What every running container of the fake uses: one percent of a core since its start, and this
// much memory and disk.
const (
	memoryInUse = 4 << 20
	diskInUse   = 64 << 10
)

// ContainerStats returns what a running container uses. It fails with class NotFound if there is no
// such container.
func (r *Runtime) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	n := r.node
	about := Call{Method: "ContainerStats", ID: id, Request: &runtimeapi.ContainerStatsRequest{ContainerId: id}}
	return call(ctx, r, about, func(context.Context) (*runtimeapi.ContainerStats, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		c, err := n.runningContainer(id)
		if err != nil {
			return nil, err
		}
		return c.stats(), nil
	})
}

// ListContainerStats returns what the running containers that match use, oldest first.
func (r *Runtime) ListContainerStats(
	ctx context.Context, filter *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, error) {
	n := r.node
	about := Call{Method: "ListContainerStats", Request: &runtimeapi.ListContainerStatsRequest{Filter: filter}}
	return call(ctx, r, about, func(context.Context) ([]*runtimeapi.ContainerStats, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		var list []*runtimeapi.ContainerStats
		for _, c := range n.containersInOrder() {
			if !c.running() || filter.GetId() != "" && filter.GetId() != c.id ||
				filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != c.sandboxID ||
				!selects(filter.GetLabelSelector(), c.config.GetLabels()) {
				continue
			}
			list = append(list, c.stats())
		}
		return list, nil
	})
}

func (c *container) stats() *runtimeapi.ContainerStats {
	now := time.Now()
	value := func(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }
	config := clone(c.config)
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.id, Metadata: config.GetMetadata(), Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
		},
		Cpu: &runtimeapi.CpuUsage{
			Timestamp: now.UnixNano(), UsageCoreNanoSeconds: value(uint64(now.Sub(c.started)) / 100),
			UsageNanoCores: value(1e7),
		},
		Memory: &runtimeapi.MemoryUsage{
			Timestamp: now.UnixNano(), WorkingSetBytes: value(memoryInUse), UsageBytes: value(memoryInUse),
			RssBytes: value(memoryInUse),
		},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: now.UnixNano(), UsedBytes: value(diskInUse), InodesUsed: value(1),
		},
	}
}
