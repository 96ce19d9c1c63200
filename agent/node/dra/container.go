package dra

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/node/dra/state"
)

// share is what a container gets of a claim.
type share struct {
	// entry is the name of the pod's entry, as that of a wish.
	entry string
	name  types.NamespacedName
	// request is the claim's request whose devices the container gets; empty for those of all.
	request string
}

// CDIDevices returns the CDI devices that a container gets of its pod's claims, each once. The
// error says which claim was not prepared for the pod.
func (m *Manager) CDIDevices(pod *v1.Pod, c *v1.Container) ([]*runtimeapi.CDIDevice, error) {
	shares, err := m.shares(pod, c)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*runtimeapi.CDIDevice
	given := map[string]bool{}
	for _, s := range shares {
		known := m.claims[s.name]
		if known == nil || !known.PodUIDs.Has(pod.UID) {
			return nil, fmt.Errorf("ResourceClaim %s of container %s is not prepared for the pod", s.name.Name, c.Name)
		}
		for _, id := range s.ids(known) {
			if !given[id] {
				given[id] = true
				out = append(out, &runtimeapi.CDIDevice{Name: id})
			}
		}
	}
	return out, nil
}

// ids returns the CDI devices of a share, in a steady order.
func (s share) ids(c *claim) []string {
	var out []string
	for _, driver := range slices.Sorted(maps.Keys(c.DriverState)) {
		for _, d := range c.DriverState[driver].Devices {
			if s.has(d) {
				out = append(out, d.CDIDeviceIDs...)
			}
		}
	}
	return out
}

// has reports whether a device is one of the share's. A driver that names no requests gives the
// device to all.
func (s share) has(d state.Device) bool {
	return s.request == "" || len(d.RequestNames) == 0 || slices.ContainsFunc(d.RequestNames, func(name string) bool {
		return baseRequest(name) == baseRequest(s.request)
	})
}

// shares returns what a container gets of its pod's claims.
func (m *Manager) shares(pod *v1.Pod, c *v1.Container) ([]share, error) {
	if len(c.Resources.Claims) == 0 && m.extended(pod) == nil {
		return nil, nil
	}
	wishes, err := m.wishes(pod)
	if err != nil {
		return nil, err
	}
	var out []share
	for _, w := range wishes {
		for _, wanted := range c.Resources.Claims {
			if w.entry == wanted.Name {
				out = append(out, share{w.entry, w.name, wanted.Request})
			}
		}
		if w.entry != "" {
			continue
		}
		for _, mapping := range m.extended(pod).RequestMappings {
			amount := c.Resources.Requests[v1.ResourceName(mapping.ResourceName)]
			if mapping.ContainerName == c.Name && !amount.IsZero() {
				out = append(out, share{w.entry, w.name, mapping.RequestName})
			}
		}
	}
	return out, nil
}
