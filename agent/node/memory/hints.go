package memory

import (
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/node/memory/state"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/internal/pods"
)

// Hints returns which NUMA nodes can give a container its memory, for each kind of memory. If none
// can, there are no hints, and the allocation fails.
func (p *Pod) Hints(c *v1.Container) [][]topology.Hint {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	wants := p.m.request(p.pod, c)
	if !p.m.Static() || len(wants) == 0 {
		return nil
	}
	if blocks, has := p.m.assigned[p.pod.UID][c.Name]; has {
		return again(blocks, wants)
	}
	return each(p.hints(wants), wants)
}

// PodHints returns which NUMA nodes can give all containers of the pod their memory.
func (p *Pod) PodHints() [][]topology.Hint {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	wants := p.m.together(p.pod)
	if !p.m.Static() || len(wants) == 0 {
		return nil
	}
	if p.m.cfg.Rules.Whole(p.pod) && p.m.pool(p.pod, wants) != nil {
		return make([][]topology.Hint, len(wants)) // those that share would have no memory
	}
	if blocks, has := p.m.pods[p.pod.UID]; has {
		return again(blocks, wants)
	}
	for c := range pods.Starting(p.pod) {
		if blocks, has := p.m.assigned[p.pod.UID][c.Name]; has {
			return again(blocks, wants)
		}
	}
	return each(p.hints(wants), wants)
}

// together returns what a pod has as a whole, or else what its containers have at a time, at most,
// of the kinds of memory that its app containers want.
func (m *Manager) together(pod *v1.Pod) amounts {
	if m.cfg.Rules.Whole(pod) {
		return m.whole(pod)
	}
	initial, staying, out := amounts{}, amounts{}, amounts{}
	for c, ends := range pods.Starting(pod) {
		for name, size := range m.request(pod, c) {
			if ends {
				initial[name] = max(initial[name], staying[name]+size)
			} else {
				staying[name] += size
			}
		}
	}
	for i := range pod.Spec.Containers {
		for name := range m.request(pod, &pod.Spec.Containers[i]) {
			out[name] = max(initial[name], staying[name])
		}
	}
	return out
}

// again returns the hints of a container that has its memory; none if it asked for something else.
func again(blocks []state.Block, wants amounts) [][]topology.Hint {
	if len(blocks) != len(wants) {
		return nil
	}
	var out [][]topology.Hint
	for _, b := range blocks {
		if size, wanted := wants[b.Type]; !wanted || size != b.Size {
			return nil
		}
		out = append(out, []topology.Hint{{Nodes: topology.MaskOf(b.NUMAAffinity...), Preferred: true}})
	}
	return out
}

// each returns the hints for each kind of memory: the same for all.
func each(hints []topology.Hint, wants amounts) [][]topology.Hint {
	if len(hints) == 0 {
		return nil
	}
	var out [][]topology.Hint
	for range wants {
		out = append(out, hints)
	}
	return out
}

// hints returns which nodes can give that much; m.mu is held.
func (p *Pod) hints(wants amounts) []topology.Hint {
	could := func(nodes topology.Mask) bool {
		for name, size := range wants {
			if sum(p.m.machine, nodes, name, allocatable) < size {
				return false
			}
		}
		return true
	}
	out, _ := topology.Hints(p.m.cfg.Machine.nodes(), could, func(nodes topology.Mask) bool {
		if !could(nodes) || apart(p.m.machine, nodes) || grouped(p.m.machine, nodes) {
			return false
		}
		for name, size := range wants {
			if sum(p.m.machine, nodes, name, free)+p.reusable[nodes][name] < size {
				return false
			}
		}
		return true
	})
	return out
}

// grouped reports whether a single node gives memory together with others.
func grouped(nodes state.NUMANodeMap, one topology.Mask) bool {
	for _, n := range one.Nodes() {
		if one.Count() == 1 && len(nodes[n].Cells) > 1 {
			return true
		}
	}
	return false
}
