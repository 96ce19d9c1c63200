package devices

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Held returns the devices of a container for the pod resources API: an entry for each device and
// each of its NUMA nodes, sorted by resource.
func (m *Manager) Held(uid types.UID, container string) []*resourcesapi.ContainerDevices {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*resourcesapi.ContainerDevices
	resources := m.pods[uid][container]
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		a := resources[name]
		if a.response == nil {
			continue
		}
		for _, node := range slices.Sorted(maps.Keys(a.ids)) {
			for _, id := range a.ids[node] {
				out = append(out, entry(name, id, node))
			}
		}
	}
	return out
}

// Allocatable returns the healthy devices of the node, whoever has them, in the same form.
func (m *Manager) Allocatable() []*resourcesapi.ContainerDevices {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*resourcesapi.ContainerDevices
	for _, name := range slices.Sorted(maps.Keys(m.resources)) {
		r := m.resources[name]
		for _, id := range r.healthy() {
			nodes := r.devices[id].nodes
			if len(nodes) == 0 {
				nodes = []int64{noNode}
			}
			for _, node := range nodes {
				out = append(out, entry(name, id, node))
			}
		}
	}
	return out
}

func entry(name, id string, node int64) *resourcesapi.ContainerDevices {
	out := &resourcesapi.ContainerDevices{ResourceName: name, DeviceIds: []string{id}}
	if node != noNode {
		out.Topology = &resourcesapi.TopologyInfo{Nodes: []*resourcesapi.NUMANode{{ID: node}}}
	}
	return out
}

// Lost reports whether a pod has devices of a plugin that has not come since the agent's start.
// Whether there are such devices still is not known.
func (m *Manager) Lost(pod *v1.Pod) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, of := range m.pods[pod.UID] {
		for name := range of {
			if r := m.resources[name]; r != nil && r.plugin == nil && len(r.devices) == 0 {
				return true
			}
		}
	}
	return false
}
