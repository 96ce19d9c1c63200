package cpus

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/berthd/berth/agent/node/cpus/choose"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/internal/pods"
)

// Hints returns on which NUMA nodes a container can get CPUs of its own; nothing if it shares.
func (p *Pod) Hints(c *v1.Container) [][]topology.Hint {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	count := p.m.exclusive(p.pod, c)
	if !p.m.Static() || count == 0 {
		return nil
	}
	if set, has := p.m.assigned[p.pod.UID][c.Name]; has {
		return p.m.again(set, count)
	}
	return [][]topology.Hint{p.m.hints(p.m.shared.Difference(p.m.reserved), p.reusable, count)}
}

// PodHints returns on which NUMA nodes all containers of the pod can get CPUs of their own.
func (p *Pod) PodHints() [][]topology.Hint {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	count := p.m.together(p.pod)
	if !p.m.Static() || count == 0 {
		return nil
	}
	if p.m.whole(p.pod) > 0 && p.m.pool(p.pod, count) != nil {
		return [][]topology.Hint{{}} // those that share would have no CPU
	}
	if set, has := p.m.pods[p.pod.UID]; has {
		return p.m.again(set, count)
	}
	has := cpuset.New()
	for c := range pods.Starting(p.pod) {
		set, known := p.m.assigned[p.pod.UID][c.Name]
		if known && set.Size() != p.m.exclusive(p.pod, c) {
			return [][]topology.Hint{{}}
		}
		has = has.Union(set)
	}
	if has.Size() == count {
		return p.m.again(has, count)
	}
	return [][]topology.Hint{p.m.hints(p.m.shared.Difference(p.m.reserved), p.reusable.Union(has), count)}
}

// together returns how many CPUs a pod has as a whole, or else how many its containers have for
// themselves at a time, at most.
func (m *Manager) together(pod *v1.Pod) int {
	if m.cfg.Rules.Whole(pod) {
		return m.whole(pod)
	}
	initial, staying := 0, 0
	for c, ends := range pods.Starting(pod) {
		count := m.exclusive(pod, c)
		if ends {
			initial = max(initial, staying+count)
		} else {
			staying += count
		}
	}
	return max(initial, staying)
}

// again returns the hints of those who have their CPUs; m.mu is held.
func (m *Manager) again(set cpuset.CPUSet, count int) [][]topology.Hint {
	if set.Size() != count {
		return [][]topology.Hint{{}} // not what was asked for: it cannot be had
	}
	return [][]topology.Hint{m.hints(set, cpuset.New(), count)}
}

// hints returns on which NUMA nodes that many CPUs can be had. All reusable ones have to be there.
func (m *Manager) hints(available, reusable cpuset.CPUSet, count int) []topology.Hint {
	out, smallest := topology.Hints(m.nodes(m.cfg.Machine.Set()), func(nodes topology.Mask) bool {
		return m.within(nodes).Size() >= count
	}, func(nodes topology.Mask) bool {
		here := m.within(nodes)
		return reusable.IsSubsetOf(here) && reusable.Size()+available.Intersection(here).Size() >= count
	})
	for i := range out {
		out[i].Preferred = out[i].Preferred || m.cfg.BySocket && m.socketsFit(out[i].Nodes, smallest)
	}
	return out
}

// socketsFit reports whether the nodes are in no more sockets than the smallest number of nodes has
// to be in.
func (m *Manager) socketsFit(nodes topology.Mask, smallest int) bool {
	perSocket := m.nodes(m.cfg.Machine.Set()).Count() / max(1, len(m.sockets(m.cfg.Machine.Set())))
	return perSocket > 0 && len(m.sockets(m.within(nodes))) == (smallest+perSocket-1)/perSocket
}

// on returns the CPUs that are near enough to the nodes: those on them or, under the option
// align-by-socket, those in the same sockets.
func (m *Manager) on(nodes topology.Mask) cpuset.CPUSet {
	here := m.within(nodes)
	if !m.cfg.BySocket {
		return here
	}
	sockets := m.sockets(here)
	return m.those(func(c choose.CPU) bool { return sockets[c.Socket] })
}

// within returns the CPUs on the nodes.
func (m *Manager) within(nodes topology.Mask) cpuset.CPUSet {
	return m.those(func(c choose.CPU) bool { return nodes.Has(c.Node) })
}

func (m *Manager) those(has func(choose.CPU) bool) cpuset.CPUSet {
	var ids []int
	for _, c := range m.cfg.Machine {
		if has(c) {
			ids = append(ids, c.ID)
		}
	}
	return cpuset.New(ids...)
}

// nodes returns the NUMA nodes of CPUs, sockets their sockets.
func (m *Manager) nodes(of cpuset.CPUSet) topology.Mask {
	var out topology.Mask
	for _, c := range m.cfg.Machine {
		if of.Contains(c.ID) {
			out |= topology.MaskOf(c.Node)
		}
	}
	return out
}

func (m *Manager) sockets(of cpuset.CPUSet) map[int]bool {
	out := map[int]bool{}
	for _, c := range m.cfg.Machine {
		if of.Contains(c.ID) {
			out[c.Socket] = true
		}
	}
	return out
}
