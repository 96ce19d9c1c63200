package memory

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/node/memory/state"
	"github.com/berthd/berth/agent/node/podlevel"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/internal/pods"
)

// whole returns which memory a pod has as a whole; nothing if its containers are looked at one by
// one.
func (m *Manager) whole(pod *v1.Pod) amounts {
	if !m.cfg.Rules.Whole(pod) {
		return nil
	}
	return memoryOf(pod.Spec.Resources.Requests)
}

// pool returns an error if containers of a pod would share none of its memory.
func (m *Manager) pool(pod *v1.Pod, total amounts) error {
	return podlevel.Pool(pod, total, func(c *v1.Container) podlevel.Amounts { return m.request(pod, c) })
}

// AllocatePod gives a pod its memory as a whole, from the nodes of the hint if they have it, and of
// that each container its part. A pod that has some keeps it. After an error the caller calls
// [Manager.Release].
func (p *Pod) AllocatePod(_ context.Context, hint topology.Hint) error {
	m := p.m
	m.mu.Lock()
	defer m.mu.Unlock()
	total := m.whole(p.pod)
	_, has := m.pods[p.pod.UID]
	if !m.Static() || len(total) == 0 || has || len(m.assigned[p.pod.UID]) > 0 {
		return nil
	}
	nodes, err := p.nodesOf(total, hint)
	m.deps.Metrics.MemoryPinned(err != nil)
	if err != nil {
		m.deps.Metrics.Allocated(v1.ResourceMemory, podlevel.FromPod, true)
		return err
	}
	blocks := blocksOf(total, nodes)
	for _, b := range blocks {
		take(m.machine, b, b.Size)
	}
	m.pods[p.pod.UID], m.assigned[p.pod.UID] = blocks, m.parts(p.pod, total, nodes)
	m.countWhole(p.pod)
	return m.save()
}

// nodesOf chooses the nodes that give a pod its memory; m.mu is held.
func (p *Pod) nodesOf(total amounts, hint topology.Hint) (topology.Mask, error) {
	if err := p.m.pool(p.pod, total); err != nil {
		return 0, err
	}
	hint, err := p.choose(total, hint)
	if err != nil {
		return 0, p.orLater(err, total)
	}
	return hint.Nodes, nil
}

// parts returns which of a pod's memory each container has. Who has none for itself shares what
// nobody has: a sidecar or an app container what is left in the end, an init container all but what
// the sidecars before it have.
func (m *Manager) parts(pod *v1.Pod, total amounts, nodes topology.Mask) map[string][]state.Block {
	out := map[string][]state.Block{}
	left := amounts{}
	for name, size := range total {
		left[name] = size
	}
	for c, ends := range pods.Starting(pod) {
		own := m.request(pod, c)
		switch {
		case len(own) > 0:
			out[c.Name] = blocksOf(own, nodes)
		case ends:
			out[c.Name] = blocksOf(left, nodes)
		}
		if ends {
			continue
		}
		for name, size := range own {
			left[name] -= min(size, left[name])
		}
	}
	for c := range pods.Starting(pod) {
		if _, has := out[c.Name]; !has {
			out[c.Name] = blocksOf(left, nodes)
		}
	}
	return out
}

// blocksOf returns blocks of these nodes.
func blocksOf(sizes amounts, nodes topology.Mask) []state.Block {
	out := []state.Block{}
	for _, name := range sizes.names() {
		if sizes[name] > 0 {
			out = append(out, state.Block{NUMAAffinity: nodes.Nodes(), Type: name, Size: sizes[name]})
		}
	}
	return out
}

// countWhole counts the containers of a pod that got memory as a whole.
func (m *Manager) countWhole(pod *v1.Pod) {
	for c, ends := range pods.Starting(pod) {
		kind := podlevel.SharedPod
		if len(m.request(pod, c)) > 0 {
			kind = podlevel.ExclusivePod
		}
		if kind == podlevel.ExclusivePod || ends {
			m.deps.Metrics.MemoryPinned(false)
		}
		m.deps.Metrics.Assigned(v1.ResourceMemory, kind)
		m.deps.Metrics.Allocated(v1.ResourceMemory, podlevel.FromPod, false)
	}
}
