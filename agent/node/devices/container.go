package devices

import (
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berthd/berth/agent/node/topology"
)

// Given is what the plugins want a container to have.
type Given struct {
	Envs        []*runtimeapi.KeyValue
	Mounts      []*runtimeapi.Mount
	Devices     []*runtimeapi.Device
	CDIDevices  []*runtimeapi.CDIDevice
	Annotations map[string]string
}

// Container prepares the devices of a container that is going to start, if their plugins ask for
// that, and returns what the plugins want the container to have. A container that has no devices
// yet, because its pod was admitted before the plugin registered, gets them now.
func (m *Manager) Container(ctx context.Context, pod *v1.Pod, c *v1.Container) (Given, error) {
	wanted := m.wantedBy(pod, c)
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if err := m.preStart(ctx, pod.UID, c.Name, name); err != nil {
			return Given{}, err
		}
	}
	if err := m.allocateMissing(ctx, pod, c, wanted); err != nil {
		return Given{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return given(m.pods[pod.UID][c.Name]), nil
}

// allocateMissing gives a container the devices that it wants and that nobody has allocated.
func (m *Manager) allocateMissing(ctx context.Context, pod *v1.Pod, c *v1.Container, wanted map[string]int) error {
	m.mu.Lock()
	missing := len(wanted) > len(m.pods[pod.UID][c.Name])
	m.mu.Unlock()
	if !missing {
		return nil
	}
	none := func(string) bool { return false }
	return m.Begin(pod, none).Allocate(ctx, c, false, topology.Hint{})
}

// preStart lets the plugin prepare the devices that a container has, if it wants to.
func (m *Manager) preStart(ctx context.Context, uid types.UID, container, name string) error {
	p, ids := m.prepared(uid, container, name)
	if len(ids) == 0 {
		return nil
	}
	if p == nil {
		return fmt.Errorf("device plugin PreStartContainer rpc failed with err: endpoint %s has been stopped", name)
	}
	asked, done := context.WithTimeout(ctx, preStartTimeout)
	defer done()
	if _, err := p.client.PreStartContainer(asked, &pluginapi.PreStartContainerRequest{DevicesIds: ids}); err != nil {
		return fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
	}
	return nil
}

// prepared returns the plugin that wants to prepare the devices that a container has, and the
// devices: none if there are none to prepare. The plugin is nil if it has gone.
func (m *Manager) prepared(uid types.UID, container, name string) (*plugin, []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, a := m.resources[name], m.pods[uid][container][name]
	if r == nil || a == nil || !r.options.GetPreStartRequired() {
		return nil, nil
	}
	return r.plugin, a.list()
}

// wantedBy is wanted without the lock.
func (m *Manager) wantedBy(pod *v1.Pod, c *v1.Container) map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wanted(pod, c)
}

// given puts the answers of the plugins together, in the order of their resources. Where two
// answers name the same thing, the first counts.
func given(resources map[string]*allocation) Given {
	out := Given{Annotations: map[string]string{}}
	seen := map[[2]string]bool{}
	first := func(kind, name string) bool {
		key := [2]string{kind, name}
		again := seen[key]
		seen[key] = true
		return !again
	}
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		r := resources[name].response
		for _, key := range slices.Sorted(maps.Keys(r.GetEnvs())) {
			if first("env", key) {
				out.Envs = append(out.Envs, &runtimeapi.KeyValue{Key: key, Value: []byte(r.GetEnvs()[key])})
			}
		}
		for _, d := range r.GetDevices() {
			if first("device", d.GetContainerPath()) {
				out.Devices = append(out.Devices, &runtimeapi.Device{
					HostPath: d.GetHostPath(), ContainerPath: d.GetContainerPath(), Permissions: d.GetPermissions(),
				})
			}
		}
		for _, mount := range r.GetMounts() {
			if first("mount", mount.GetContainerPath()) {
				out.Mounts = append(out.Mounts, &runtimeapi.Mount{
					HostPath: mount.GetHostPath(), ContainerPath: mount.GetContainerPath(), Readonly: mount.GetReadOnly(),
				})
			}
		}
		for _, d := range r.GetCdiDevices() {
			if first("cdi", d.GetName()) {
				out.CDIDevices = append(out.CDIDevices, &runtimeapi.CDIDevice{Name: d.GetName()})
			}
		}
		for key, value := range r.GetAnnotations() {
			if first("annotation", key) {
				out.Annotations[key] = value
			}
		}
	}
	return out
}

// Health returns the health of the devices of a pod's containers, for the pod's status: by the
// container's name, the resources and the devices sorted. A device that its plugin does not list
// any more is unhealthy; while no plugin is connected, the health of a device is not known. A
// plugin that has not registered again since the agent's start says nothing of its devices yet:
// they are left out, so that a restart of the agent changes no status.
func (m *Manager) Health(uid types.UID) map[string][]v1.ResourceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string][]v1.ResourceStatus{}
	for container, resources := range m.pods[uid] {
		for _, name := range slices.Sorted(maps.Keys(resources)) {
			r := m.resources[name]
			starting := r != nil && r.plugin == nil && !r.gone() && len(r.devices) == 0
			if resources[name].response == nil || starting {
				continue
			}
			s := v1.ResourceStatus{Name: v1.ResourceName(name)}
			for _, id := range resources[name].list() {
				s.Resources = append(s.Resources, v1.ResourceHealth{
					ResourceID: v1.ResourceID(id), Health: r.health(id),
				})
			}
			out[container] = append(out[container], s)
		}
	}
	return out
}

// health returns the health of one device.
func (r *resource) health(id string) v1.ResourceHealthStatus {
	switch {
	case r == nil || r.plugin == nil:
		return v1.ResourceHealthStatusUnknown
	case r.devices[id].healthy:
		return v1.ResourceHealthStatusHealthy
	}
	return v1.ResourceHealthStatusUnhealthy
}
