package allocation

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/berthd/berth/agent/node/cpus"
	"github.com/berthd/berth/agent/node/devices"
	"github.com/berthd/berth/agent/node/dra"
	"github.com/berthd/berth/agent/node/memory"
	"github.com/berthd/berth/agent/node/podresources"
	"github.com/berthd/berth/internal/lifecycle"
)

// Run serves the device plugins, and the programs that ask which container has what, until ctx
// ends.
func (m *Manager) Run(ctx context.Context) error {
	if !m.deps.KernelNotices {
		return lifecycle.Idle(ctx)
	}
	asked := podresources.New(podResourcesDir(m.root), podresources.Deps{
		Pods: m.pods, Listed: m.deps.Listed, Pieces: pieces{m.Devices, m.Claims, m.cpus, m.memory}, Metrics: m.deps.Metrics,
		Logger: m.deps.Logger,
	})
	return lifecycle.Run(ctx, []lifecycle.Loop{
		{Name: "device plugins", Run: m.Devices.Run},
		{Name: "resource claims", Run: m.Claims.Run},
		{Name: "cpus", Run: m.cpus.Run},
		{Name: "pod resources", Run: asked.Run},
	})
}

// pieces are what the pod resources API tells of.
type pieces struct {
	*devices.Manager
	claims *dra.Manager
	cpus   *cpus.Manager
	memory *memory.Manager
}

// Dynamic returns the resource claims of a pod's container.
func (p pieces) Dynamic(pod *v1.Pod, c *v1.Container) []*resourcesapi.DynamicResource {
	return p.claims.Dynamic(pod, c)
}

// CPUs returns the CPUs that a container has for itself.
func (p pieces) CPUs(uid types.UID, container string) []int64 { return p.cpus.Held(uid, container) }

// AllocatableCPUs returns the CPUs that containers can have for themselves.
func (p pieces) AllocatableCPUs() []int64 { return p.cpus.Allocatable() }

// Memory returns the memory that a container has of certain NUMA nodes.
func (p pieces) Memory(uid types.UID, container string) []*resourcesapi.ContainerMemory {
	return p.memory.Held(uid, container)
}

// AllocatableMemory returns the memory that containers can have of each NUMA node.
func (p pieces) AllocatableMemory() []*resourcesapi.ContainerMemory { return p.memory.Allocatable() }

// pods returns the pods that have not ended.
func (m *Manager) pods() []*v1.Pod {
	var out []*v1.Pod
	for _, o := range m.deps.Occupants() {
		out = append(out, o.Pod)
	}
	return out
}
