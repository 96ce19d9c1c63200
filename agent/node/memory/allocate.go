package memory

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/node/memory/state"
	"github.com/berthd/berth/agent/node/podlevel"
	"github.com/berthd/berth/agent/node/topology"
)

// The errors of a container that cannot have its memory, in the kubelet's words.
var (
	errNoNodes = errors.New("[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory " +
		"is available")
	errNotPreferred = errors.New("[memorymanager] failed to find the default preferred hint")
	errNoMore       = errors.New("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
	errMoreWorse    = errors.New("[memorymanager] failed to find the extended preferred hint")
	errApart        = errors.New("[memorymanager] preferred hint violates NUMA node allocation")
)

// Pod gives the containers of one pod their memory, one after the other. Make it with
// [Manager.Begin]. Only one goroutine may use it.
type Pod struct {
	m   *Manager
	pod *v1.Pod
	// reusable is the memory of the pod's init containers that have ended when the next container
	// starts, by the nodes that it is from.
	reusable map[topology.Mask]amounts
	// before are the names of these init containers, in their order.
	before []string
}

// Begin begins to give a pod its memory. Pods that have ended lose theirs.
func (m *Manager) Begin(pod *v1.Pod) *Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetEnded(pod.UID)
	return &Pod{m: m, pod: pod, reusable: map[topology.Mask]amounts{}}
}

// Allocate gives a container its memory, from the nodes of the hint if they have it; a container
// that has some keeps it. ends says that the container ends before the next one starts, which may
// have the same memory. After an error the caller calls [Manager.Release].
func (p *Pod) Allocate(_ context.Context, c *v1.Container, ends bool, hint topology.Hint) (err error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	wants := p.m.request(p.pod, c)
	if !p.m.Static() || len(wants) == 0 {
		return nil
	}
	_, had := p.m.assigned[p.pod.UID][c.Name]
	defer func() { p.m.count(len(wants), had, err != nil) }()
	blocks := p.m.assigned[p.pod.UID][c.Name]
	if had {
		p.reuse(c.Name, blocks, ends)
		return nil
	}
	if hint, err = p.choose(wants, hint); err != nil {
		return p.orLater(err, wants)
	}
	for _, name := range wants.names() {
		b := state.Block{NUMAAffinity: hint.Nodes.Nodes(), Type: name, Size: wants[name]}
		take(p.m.machine, b, b.Size-min(b.Size, p.reusable[hint.Nodes][name]))
		blocks = append(blocks, b)
	}
	p.takeBack(blocks)
	if p.m.assigned[p.pod.UID] == nil {
		p.m.assigned[p.pod.UID] = map[string][]state.Block{}
	}
	p.m.assigned[p.pod.UID][c.Name] = blocks
	p.reuse(c.Name, blocks, ends)
	return p.m.save()
}

// count counts a container that asked for memory of some kinds, and may have had it already.
func (m *Manager) count(kinds int, had, failed bool) {
	m.deps.Metrics.MemoryPinned(failed)
	switch {
	case !m.cfg.Rules.Managed || had:
		return
	case failed:
		m.deps.Metrics.Allocated(v1.ResourceMemory, podlevel.FromNode, true)
		return
	}
	for range kinds {
		m.deps.Metrics.Allocated(v1.ResourceMemory, podlevel.FromNode, false)
	}
	m.deps.Metrics.Assigned(v1.ResourceMemory, podlevel.ExclusiveNode)
}

// Later is the error of a pod that may get its memory when the pods have ended that are being
// ended.
type Later struct{}

// Error says what the pod waits for.
func (*Later) Error() string {
	return "waiting until pods that are being removed give back their memory"
}

// orLater returns a [Later] in place of an error if the machine has the memory that a container
// wants when the pods are gone that are being ended; m.mu is held.
func (p *Pod) orLater(err error, wants amounts) error {
	gone := p.m.gone()
	if len(gone) == 0 {
		return err
	}
	for name, size := range wants {
		has := gone[name]
		for _, node := range p.m.machine {
			if t := node.MemoryMap[name]; t != nil {
				has += t.Free
			}
		}
		if has < size {
			return err
		}
	}
	return &Later{}
}

// choose returns the nodes that give a container its memory: those of the hint, and more if these
// do not have enough; m.mu is held.
func (p *Pod) choose(wants amounts, hint topology.Hint) (topology.Hint, error) {
	hints := p.hints(wants)
	if hint.Nodes == 0 {
		best, ok := narrowest(hints, 0)
		switch {
		case !ok:
			return hint, errNoNodes
		case !best.Preferred && hint.Preferred:
			return hint, errNotPreferred
		}
		hint = best
	}
	if !p.enough(hint.Nodes, wants) {
		best, ok := narrowest(hints, hint.Nodes)
		switch {
		case !ok:
			return hint, errNoMore
		case !best.Preferred && hint.Preferred:
			return hint, errMoreWorse
		}
		hint = best
	}
	if apart(p.m.machine, hint.Nodes) {
		return hint, errApart
	}
	return hint, nil
}

// enough reports whether nobody has the memory of the nodes that a container wants. What the pod's
// init containers leave does not count, as with a kubelet.
func (p *Pod) enough(nodes topology.Mask, wants amounts) bool {
	for name, size := range wants {
		if sum(p.m.machine, nodes, name, free) < size {
			return false
		}
	}
	return true
}

// narrowest returns the best of the hints that have all these nodes: a preferred one, and then the
// one with the fewest nodes, and with the lowest numbers.
func narrowest(hints []topology.Hint, with topology.Mask) (best topology.Hint, ok bool) {
	for _, h := range hints {
		switch {
		case h.Nodes&with != with:
		case !ok, h.Preferred && !best.Preferred:
			best, ok = h, true
		case h.Preferred != best.Preferred:
		case h.Nodes.Count() < best.Nodes.Count(), h.Nodes.Count() == best.Nodes.Count() && h.Nodes < best.Nodes:
			best = h
		}
	}
	return best, ok
}

// takeBack takes from the pod's init containers what a container uses again of them, so that the
// pod's containers together have what the pod has; m.mu is held.
func (p *Pod) takeBack(blocks []state.Block) {
	for _, b := range blocks {
		missing := b.Size
		for _, name := range p.before {
			list := p.m.assigned[p.pod.UID][name]
			for i := range list {
				if list[i].Type == b.Type && topology.MaskOf(list[i].NUMAAffinity...) == topology.MaskOf(b.NUMAAffinity...) {
					some := min(missing, list[i].Size)
					list[i].Size -= some
					missing -= some
				}
			}
		}
	}
}

// reuse notes what the next container may use again of this one, or may not use any more.
func (p *Pod) reuse(container string, blocks []state.Block, ends bool) {
	if ends {
		p.before = append(p.before, container)
	}
	for _, b := range blocks {
		nodes := topology.MaskOf(b.NUMAAffinity...)
		if p.reusable[nodes] == nil {
			p.reusable[nodes] = amounts{}
		}
		has := p.reusable[nodes][b.Type]
		if ends {
			p.reusable[nodes][b.Type] = max(has, b.Size)
		} else {
			p.reusable[nodes][b.Type] = has - min(has, b.Size)
		}
	}
}
