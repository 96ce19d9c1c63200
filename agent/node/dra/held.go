package dra

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Dynamic returns the claims of a container for the pod resources API, each with all its devices,
// as a kubelet does. Claims that are not prepared are left out.
func (m *Manager) Dynamic(pod *v1.Pod, c *v1.Container) []*resourcesapi.DynamicResource {
	shares, err := m.shares(pod, c)
	if err != nil {
		return nil // the claims are not even made
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*resourcesapi.DynamicResource
	seen := map[types.NamespacedName]bool{}
	for _, s := range shares {
		known := m.claims[s.name]
		if known == nil || !known.PodUIDs.Has(pod.UID) || seen[s.name] {
			continue
		}
		seen[s.name] = true
		out = append(out, known.dynamic())
	}
	return out
}

func (c *claim) dynamic() *resourcesapi.DynamicResource {
	out := &resourcesapi.DynamicResource{ClaimName: c.ClaimName, ClaimNamespace: c.Namespace}
	for _, driver := range slices.Sorted(maps.Keys(c.DriverState)) {
		for _, d := range c.DriverState[driver].Devices {
			r := &resourcesapi.ClaimResource{
				DriverName: driver, PoolName: d.PoolName, DeviceName: d.DeviceName, ShareId: (*string)(d.ShareID),
			}
			for _, id := range d.CDIDeviceIDs {
				r.CdiDevices = append(r.CdiDevices, &resourcesapi.CDIDevice{Name: id})
			}
			out.ClaimResources = append(out.ClaimResources, r)
		}
	}
	return out
}
