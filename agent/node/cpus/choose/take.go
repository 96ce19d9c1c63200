package choose

import (
	"fmt"
	"slices"

	"k8s.io/utils/cpuset"
)

// Options change which CPUs are taken.
type Options struct {
	// Spread takes CPUs of different cores (distribute-cpus-across-cores).
	Spread bool
	// ByCache takes CPUs of as few last-level caches as it can (prefer-align-cpus-by-uncorecache).
	ByCache bool
	// OverNodes takes equal parts from several NUMA nodes where one has too few
	// (distribute-cpus-across-numa).
	OverNodes bool
	// WholeCores says that only whole cores are asked for (full-pcpus-only), so that each part of a
	// NUMA node is whole cores, too.
	WholeCores bool
}

// TooFew is the error of a choice from too few CPUs, in the kubelet's words.
type TooFew struct{ Requested, Available int }

// Error says how many there are.
func (e *TooFew) Error() string {
	return fmt.Sprintf("not enough cpus available to satisfy request: requested=%d, available=%d", e.Requested,
		e.Available)
}

// taking is a choice under way.
type taking struct {
	machine Machine
	free    Machine
	taken   cpuset.CPUSet
	needed  int
	// outer and inner are NUMA nodes and sockets: the larger ones are the outer ones. nodes are the
	// levels down to the NUMA nodes.
	outer, inner level
	nodes        []level
}

// Take chooses a number of the available CPUs.
func (m Machine) Take(available cpuset.CPUSet, count int, o Options) (cpuset.CPUSet, error) {
	t := &taking{machine: m, free: m.only(available), taken: cpuset.New(), needed: count, outer: node, inner: socket}
	t.nodes = []level{node}
	if m.count(socket) < m.count(node) {
		t.outer, t.inner = socket, node
		t.nodes = []level{socket, node}
	}
	if len(t.free) < count {
		return cpuset.New(), &TooFew{count, len(t.free)}
	}
	if group := m.group(o); o.OverNodes && count > 0 && count%group == 0 {
		o.OverNodes = false
		for _, p := range t.spread(group) {
			here := t.free.set(func(c CPU) bool { return c.Node == p.node })
			some, err := m.Take(here, p.count, o)
			if err != nil {
				return cpuset.New(), err
			}
			t.take(some)
		}
	}
	t.whole(t.outer, t.outer)
	t.whole(t.inner, t.outer, t.inner)
	if o.ByCache {
		t.caches()
	}
	if !o.Spread {
		t.whole(core, t.outer, t.inner, core)
	}
	t.rest(o.Spread)
	return t.taken, nil
}

// group returns how many CPUs are taken together.
func (m Machine) group(o Options) int {
	if o.WholeCores {
		return m.PerCore()
	}
	return 1
}

func (t *taking) take(cpus cpuset.CPUSet) {
	t.taken = t.taken.Union(cpus)
	t.free = t.free.only(t.free.Set().Difference(cpus))
	t.needed -= cpus.Size()
}

// whole takes all groups of a level of which every CPU is free, while that many are needed.
func (t *taking) whole(of level, levels ...level) {
	for _, g := range t.free.within(levels...) {
		all := t.machine.set(func(c CPU) bool { return of(c) == g.id })
		if len(g.cpus) == all.Size() && t.needed >= all.Size() {
			t.take(all)
		}
	}
}

// caches takes whole last-level caches, and then a part of one, if it has all that is missing.
func (t *taking) caches() {
	size := len(t.machine) / max(1, t.machine.count(cache))
	levels := append(t.nodes, cache)
	for _, g := range t.free.within(levels...) {
		if t.needed >= size {
			t.whole(cache, levels...)
		}
		if t.needed == 0 {
			return
		}
		t.partOf(g.id)
	}
}

// partOf takes the CPUs that are missing from the first cores of one cache, if that gives exactly
// as many.
func (t *taking) partOf(id int) {
	perCore := t.machine.PerCore()
	var cores []int
	for _, c := range t.free {
		if c.Cache == id && !slices.Contains(cores, c.Core) {
			cores = append(cores, c.Core)
		}
	}
	slices.Sort(cores)
	cores = cores[:min(len(cores), (t.needed+perCore-1)/perCore)]
	cpus := t.free.set(func(c CPU) bool { return slices.Contains(cores, c.Core) }).List()
	if t.needed%2 != 0 && perCore > 1 && len(cpus) > t.needed {
		cpus = cpus[:len(cpus)-1]
	}
	if len(cpus) == t.needed {
		t.take(cpuset.New(cpus...))
	}
}

// rest takes single CPUs: those of the cores with the fewest left, or, spread, by their numbers.
func (t *taking) rest(spread bool) {
	levels := []level{t.outer, t.inner, core}
	if spread {
		levels = []level{t.outer, socket}
	}
	var order []int
	for _, g := range t.free.within(levels...) {
		order = append(order, g.cpus.Set().List()...)
	}
	t.take(cpuset.New(order[:t.needed]...))
}
