package devices

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	helpers "k8s.io/component-helpers/resource"

	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/internal/pods"
)

// Hints returns on which NUMA nodes a container can get its devices. Resources whose devices are on
// no node have no hints.
func (p *Pod) Hints(c *v1.Container) [][]topology.Hint {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	var out [][]topology.Hint
	for name, count := range p.m.wanted(p.pod, c) {
		if !p.m.aligned(name) {
			continue
		}
		held, reusable := []string(nil), p.reusables(name)
		if a := p.m.pods[p.pod.UID][c.Name][name]; a != nil {
			held, reusable = a.list(), nil // it has what it gets
		}
		out = append(out, p.m.hints(name, held, reusable, count))
	}
	return out
}

// PodHints returns on which NUMA nodes all containers of the pod can get their devices.
func (p *Pod) PodHints() [][]topology.Hint {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	pod := p.pod
	if p.m.cfg.ByClaim {
		pod = pods.WithoutClaimed(pod)
	}
	limits := helpers.PodLimits(pod, helpers.PodResourcesOptions{ExcludeOverhead: true})
	all := v1.Container{Resources: v1.ResourceRequirements{Limits: limits}}
	var out [][]topology.Hint
	for name, count := range p.m.wanted(p.pod, &all) {
		if !p.m.aligned(name) {
			continue
		}
		var held []string
		for _, resources := range p.m.pods[p.pod.UID] {
			if a := resources[name]; a != nil {
				held = append(held, a.list()...)
			}
		}
		slices.Sort(held)
		out = append(out, p.m.hints(name, slices.Compact(held), nil, count))
	}
	return out
}

// aligned reports whether a resource has devices whose plugin says on which NUMA nodes they are;
// m.mu is held. If the machine has none of these nodes, the devices cannot be had on any node.
func (m *Manager) aligned(name string) bool {
	r := m.resources[name]
	if r == nil {
		return false
	}
	for _, d := range r.devices {
		if len(d.nodes) > 0 {
			return true
		}
	}
	return false
}

// nodes returns the NUMA nodes that have devices of a resource and that the machine has; m.mu is
// held.
func (m *Manager) nodes(name string) topology.Mask {
	var out topology.Mask
	if r := m.resources[name]; r != nil {
		for _, d := range r.devices {
			out |= d.on()
		}
	}
	if m.cfg.Nodes == 0 {
		return out
	}
	return out & m.cfg.Nodes
}

// on returns the NUMA nodes of a device.
func (d device) on() topology.Mask {
	var out topology.Mask
	for _, n := range d.nodes {
		out |= topology.MaskOf(int(n))
	}
	return out
}

// hints returns on which nodes that many devices can be had; m.mu is held. held are the devices
// that the asker has already, reusable those of earlier containers of its pod.
func (m *Manager) hints(name string, held, reusable []string, count int) []topology.Hint {
	r := m.resources[name]
	available := held
	if len(held) == 0 {
		available = m.available(request{resource: name})
	}
	if len(held) > 0 && len(held) != count || len(available)+len(reusable) < count {
		return []topology.Hint{} // it cannot be had
	}
	usable := make(map[string]bool, len(available)+len(reusable))
	for _, id := range slices.Concat(available, reusable) {
		usable[id] = true
	}
	out, _ := topology.Hints(m.nodes(name), func(nodes topology.Mask) bool {
		return r.count(nodes, func(string) bool { return true }) >= count
	}, func(nodes topology.Mask) bool {
		for _, id := range reusable {
			if on := r.devices[id].on(); on != 0 && on&nodes == 0 {
				return false
			}
		}
		return r.count(nodes, func(id string) bool { return usable[id] }) >= count
	})
	return out
}

// count returns how many of the devices are on one of the nodes.
func (r *resource) count(nodes topology.Mask, which func(id string) bool) int {
	n := 0
	for id, d := range r.devices {
		if d.on()&nodes != 0 && which(id) {
			n++
		}
	}
	return n
}

// last puts the devices that are on no node behind the others, if a request wants some nodes; m.mu
// is held.
func (m *Manager) last(q request, available []string) []string {
	if q.nodes == 0 {
		return available
	}
	has := func(id string) int {
		if m.resources[q.resource].devices[id].on() == 0 {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(available, func(a, b string) int { return has(a) - has(b) })
	return available
}

// near returns those of the available devices that are on the NUMA nodes that a request wants, and
// those that it uses again; m.mu is held.
func (m *Manager) near(q request, available []string) []string {
	var out []string
	for _, id := range available {
		on := m.resources[q.resource].devices[id].on()
		if q.nodes != 0 && on&q.nodes != 0 || slices.Contains(q.reusable, id) {
			out = append(out, id)
		}
	}
	return out
}

// Leaving reports whether pods that are being ended have devices.
func (m *Manager) Leaving() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	holders, _ := m.deps.Holders()
	for uid := range m.pods {
		if holders[uid] {
			return true
		}
	}
	return false
}
