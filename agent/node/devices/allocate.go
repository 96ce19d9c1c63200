package devices

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berthd/berth/agent/node/devices/checkpoint"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/internal/pods"
)

// noNode is the NUMA node, in the checkpoint, of devices that have none.
const noNode = -1

// Later is the error of an allocation that may succeed later, with nothing changed about the pod.
type Later struct{ For string }

// Error says what the pod waits for.
func (l *Later) Error() string { return l.For }

// Wants reports whether a pod wants devices of a plugin that is or was connected.
func (m *Manager) Wants(pod *v1.Pod) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range pods.Starting(pod) {
		if len(m.wanted(pod, c)) > 0 {
			return true
		}
	}
	return false
}

// wanted returns how many devices of which resources a container of a pod wants; m.mu is held. A
// plugin's resource cannot be overcommitted: its limit is its request.
func (m *Manager) wanted(pod *v1.Pod, c *v1.Container) map[string]int {
	out := map[string]int{}
	for name, amount := range c.Resources.Limits {
		if m.cfg.ByClaim && pods.Claimed(pod, c.Name, name) {
			continue
		}
		if r := m.resources[string(name)]; amount.Value() > 0 && (r != nil && !r.gone() || m.allocated(string(name))) {
			out[string(name)] = int(amount.Value())
		}
	}
	return out
}

// allocated reports whether a container has devices of a resource; m.mu is held.
func (m *Manager) allocated(name string) bool {
	return len(m.holding(name, func(string) bool { return true })) > 0
}

// Pod gives the containers of one pod their devices, one after the other. Make it with
// [Manager.Begin]. Only one goroutine may use it.
type Pod struct {
	m       *Manager
	pod     *v1.Pod
	running func(container string) bool
	// reusable has the devices of the pod's containers so far, by resource: true for those that the
	// next container may have, too.
	reusable map[string]map[string]bool
}

// Begin begins to give a pod its devices. Pods that have ended lose theirs. running says which of
// the pod's containers run already: these have their devices, healthy or not.
func (m *Manager) Begin(pod *v1.Pod, running func(container string) bool) *Pod {
	m.forgetEnded(pod.UID)
	return &Pod{m: m, pod: pod, running: running, reusable: map[string]map[string]bool{}}
}

// Allocate gives a container its devices, and notes them in the checkpoint file. A container that
// has devices keeps them. Those on the nodes of the hint are taken first. ends says that the
// container ends before the next one starts, which may have the same devices.
//
// The error is a [Later] if only pods that are being ended have what is missing. After an error the
// caller calls [Manager.Release].
func (p *Pod) Allocate(ctx context.Context, c *v1.Container, ends bool, hint topology.Hint) error {
	m := p.m
	wanted := m.wantedBy(p.pod, c)
	changed := false
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		q := request{
			pod: p.pod, container: c.Name, resource: name, count: wanted[name], running: p.running(c.Name),
			nodes: hint.Nodes, reusable: p.reusables(name),
		}
		has, err := m.check(q)
		if err != nil {
			return err
		}
		if has {
			continue
		}
		if err := m.ask(ctx, q); err != nil {
			return err
		}
		changed = true
	}
	p.reuse(c.Name, ends)
	if changed {
		return m.save()
	}
	return nil
}

// reusables returns the devices of a resource that the next container may have, too, sorted.
func (p *Pod) reusables(name string) []string {
	var out []string
	for id, free := range p.reusable[name] {
		if free {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// reuse notes whether the next container may have the devices of this one.
func (p *Pod) reuse(container string, ends bool) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	for name, a := range p.m.pods[p.pod.UID][container] {
		if p.reusable[name] == nil {
			p.reusable[name] = map[string]bool{}
		}
		for _, id := range a.list() {
			p.reusable[name][id] = ends
		}
	}
}

// request is a container's wish for devices of one resource.
type request struct {
	pod       *v1.Pod
	container string
	resource  string
	count     int
	// reusable are devices of earlier init containers, sorted.
	reusable []string
	running  bool
	// nodes are the NUMA nodes whose devices are taken first; none if that does not matter.
	nodes topology.Mask
}

// check reports whether the container has its devices already. The errors are in the kubelet's
// words.
func (m *Manager) check(q request) (has bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var held []string
	if a := m.pods[q.pod.UID][q.container][q.resource]; a != nil {
		held = a.list()
		if len(held) != q.count {
			return false, fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d", q.pod.UID,
				q.container, q.resource, len(held), q.count)
		}
	}
	if q.running {
		return true, nil
	}
	r := m.resources[q.resource]
	switch {
	case r == nil || r.gone():
		return false, fmt.Errorf("cannot allocate unregistered device %s", q.resource)
	case len(r.healthy()) == 0 && r.plugin == nil && len(r.devices) == 0 && !pods.FromAPI(q.pod):
		// nobody makes a static pod again, so it waits for a plugin that has not come back yet
		return false, &Later{"waiting for the device plugin of " + q.resource}
	case len(r.healthy()) == 0:
		return false, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", q.resource)
	}
	for _, id := range held {
		if !r.devices[id].healthy {
			return false, fmt.Errorf("previously allocated devices are no longer healthy; cannot allocate unhealthy "+
				"devices %s", q.resource)
		}
	}
	return held != nil, nil
}

// ask chooses devices and asks the plugin for them.
func (m *Manager) ask(ctx context.Context, q request) error {
	preferred, err := m.preferred(ctx, q)
	if err != nil {
		return err
	}
	p, ids, err := m.reserve(q, preferred)
	if err != nil {
		return err
	}
	began := time.Now()
	asked, done := context.WithTimeout(ctx, m.cfg.AllocateTimeout)
	defer done()
	response, err := p.client.Allocate(asked, &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}},
	})
	m.deps.Metrics.DevicesAllocated(q.resource, time.Since(began))
	if err == nil && len(response.GetContainerResponses()) == 0 {
		err = fmt.Errorf("no containers return in allocation response %v", response)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.pods[q.pod.UID][q.container][q.resource]
	switch {
	case err != nil:
		delete(m.pods[q.pod.UID][q.container], q.resource)
		return err
	case a == nil:
		return fmt.Errorf("the pod ended while the device plugin of %s was asked", q.resource)
	}
	a.response = response.GetContainerResponses()[0]
	return nil
}

// preferring returns the plugin to ask which devices it would rather give, those that it may choose
// from and those that it must give. It returns no plugin if there is nothing to ask.
func (m *Manager) preferring(q request) (p *plugin, available, must []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[q.resource]
	available = m.available(q)
	asks := r.options.GetGetPreferredAllocationAvailable()
	near, must := m.near(q, available), q.reusable
	switch {
	case len(near) > q.count: // the choice is between these
		available = near
	case len(near) == q.count:
		asks = false
	default: // these are taken, and the plugin chooses the others
		must = near
	}
	if !asks || len(available) <= q.count || len(q.reusable) >= q.count {
		return nil, nil, nil
	}
	return r.plugin, available, must
}

// preferred returns the devices that the plugin would rather give, if it says so.
func (m *Manager) preferred(ctx context.Context, q request) ([]string, error) {
	p, available, must := m.preferring(q)
	if p == nil {
		return nil, nil
	}
	asked, done := context.WithTimeout(ctx, m.cfg.AllocateTimeout)
	defer done()
	response, err := p.client.GetPreferredAllocation(asked, &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: int32(q.count),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
	}
	if list := response.GetContainerResponses(); len(list) > 0 {
		return list[0].GetDeviceIDs(), nil
	}
	return nil, nil
}

// reserve chooses devices and notes them as the container's, before anybody else can have them.
func (m *Manager) reserve(q request, preferred []string) (*plugin, []string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[q.resource]
	if r.plugin == nil {
		return nil, nil, fmt.Errorf("endpoint %s has been stopped", q.resource)
	}
	available := m.available(q)
	if len(available) < q.count {
		if held := m.leaving(q.resource); len(available)+held >= q.count {
			return nil, nil, &Later{fmt.Sprintf("waiting until pods that are being removed give back %s", q.resource)}
		}
		return nil, nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d",
			q.resource, q.count, len(available))
	}
	ids := choose(q, preferred, m.near(q, available), m.last(q, available))
	a := &allocation{ids: checkpoint.DevicesPerNUMA{}}
	for _, id := range ids {
		nodes := r.devices[id].nodes
		if len(nodes) == 0 {
			nodes = []int64{noNode}
		}
		for _, node := range nodes {
			a.ids[node] = append(a.ids[node], id)
		}
	}
	m.put(q.pod.UID, q.container, q.resource, a)
	return r.plugin, ids, nil
}

// choose takes some of the available devices: first those that the pod has already, then those on
// the wanted NUMA nodes, of them and of the others first those that the plugin prefers. near and
// available have the reusable ones.
func choose(q request, preferred, near, available []string) []string {
	var out []string
	take := func(from, of []string) {
		for _, id := range from {
			if len(out) < q.count && !slices.Contains(out, id) && slices.Contains(of, id) {
				out = append(out, id)
			}
		}
	}
	take(q.reusable, available)
	take(preferred, near)
	take(near, near)
	take(preferred, available)
	take(available, available)
	slices.Sort(out)
	return out
}

// available returns the healthy devices that nobody has, and the reusable ones, sorted; m.mu is
// held.
func (m *Manager) available(q request) []string {
	taken := m.taken(q.resource)
	return slices.DeleteFunc(m.resources[q.resource].healthy(), func(id string) bool {
		return taken[id] && !slices.Contains(q.reusable, id)
	})
}

// leaving returns how many healthy devices of a resource the pods have that are being ended; m.mu
// is held.
func (m *Manager) leaving(name string) int {
	holders, _ := m.deps.Holders()
	free := map[string]bool{}
	for uid, containers := range m.pods {
		if !holders[uid] {
			continue
		}
		for _, c := range containers {
			if a := c[name]; a != nil {
				for _, id := range a.list() {
					free[id] = m.resources[name].devices[id].healthy
				}
			}
		}
	}
	n := 0
	for _, healthy := range free {
		if healthy {
			n++
		}
	}
	return n
}

// forgetEnded takes the devices from the pods that have ended, except one pod.
func (m *Manager) forgetEnded(but types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	holders, known := m.deps.Holders() // under the lock, so that it has all pods that have devices
	if !known {
		return
	}
	maps.DeleteFunc(m.pods, func(uid types.UID, _ map[string]map[string]*allocation) bool {
		_, holds := holders[uid]
		return !holds && uid != but
	})
}

// Release takes the devices from a pod that was not admitted.
func (m *Manager) Release(uid types.UID) {
	m.mu.Lock()
	_, had := m.pods[uid]
	delete(m.pods, uid)
	m.mu.Unlock()
	if had {
		m.saved()
	}
}

// list returns the ids of an allocation, each once, sorted.
func (a *allocation) list() []string {
	var out []string
	for _, ids := range a.ids {
		out = append(out, ids...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
