package topology

import "slices"

// The names of the policies and of the scopes.
const (
	None           = "none"
	BestEffort     = "best-effort"
	Restricted     = "restricted"
	SingleNUMANode = "single-numa-node"

	scopeContainer = "container"
	scopePod       = "pod"
)

// Policy says how hints are merged.
type Policy struct {
	Name string
	// ByPod gives all containers of a pod the same nodes (scope pod).
	ByPod bool
	// Nodes are the machine's NUMA nodes.
	Nodes Mask
	// Distances are how far the nodes are from each other; nil if that does not count. Of two sets
	// of the same size, the one whose nodes are closer to each other is better
	// (prefer-closest-numa-nodes).
	Distances map[int][]int
}

// Aligns reports whether hints count at all.
func (p *Policy) Aligns() bool { return p.Name != "" && p.Name != None }

// Guarantees reports whether all that a container gets is on one node.
func (p *Policy) Guarantees() bool { return p.Name == SingleNUMANode }

// Scope returns the name of the scope.
func (p *Policy) Scope() string {
	if p.ByPod {
		return scopePod
	}
	return scopeContainer
}

// Error is the error of a pod that cannot have its resources from the same NUMA nodes, in the
// kubelet's words.
type Error struct {
	// PodLevel says, in the kubelet's words, how a pod with resources of its own failed; empty for
	// other pods.
	PodLevel string
}

// Error says so.
func (e *Error) Error() string {
	if e.PodLevel != "" {
		return "Pod Scope " + e.PodLevel
	}
	return "Resources cannot be allocated with Topology locality"
}

// Merge returns the nodes that suit the hints of all resources best, and whether the policy lets
// the pod run with them. A resource with an empty list cannot be had at all; one without a
// preference is left out of the list.
func (p *Policy) Merge(resources [][]Hint) (best Hint, admitted bool) {
	resources = p.possible(resources)
	wide := widest(resources)
	best = Hint{Nodes: p.Nodes}
	found := false
	for _, h := range combinations(resources) {
		switch {
		case h.Nodes == 0: // all can be had anywhere
			h.Nodes = p.Nodes
		case h.Nodes&p.Nodes == 0:
			continue
		default:
			h.Nodes &= p.Nodes
		}
		if !found || p.better(h, best, wide) {
			best, found = h, true
		}
	}
	if p.Guarantees() && best.Nodes == p.Nodes {
		best.Nodes = 0
	}
	return best, best.Preferred || p.Name == BestEffort
}

// possible returns the hints that the policy looks at. A resource that cannot be had gets a hint of
// any nodes that is not preferred. The policy single-numa-node looks at preferred hints of one node
// or of any.
func (p *Policy) possible(resources [][]Hint) [][]Hint {
	out := make([][]Hint, 0, len(resources))
	for _, hints := range resources {
		if len(hints) == 0 {
			hints = []Hint{{}}
		}
		if p.Guarantees() {
			hints = slices.DeleteFunc(slices.Clone(hints), func(h Hint) bool { return !h.Preferred || h.Nodes.Count() > 1 })
		}
		out = append(out, hints)
	}
	return out
}

// widest returns how many nodes the resource needs that needs the most.
func widest(resources [][]Hint) int {
	most := 0
	for _, hints := range resources {
		fewest := 0
		for _, h := range hints {
			if n := h.Nodes.Count(); fewest == 0 || n > 0 && n < fewest {
				fewest = n
			}
		}
		most = max(most, fewest)
	}
	return most
}

// combinations returns what comes out when one hint is taken of each resource: the nodes that all
// of them have, preferred if all are, and are of the same nodes. Of equal results one is returned,
// so that many hints take no longer than few.
func combinations(resources [][]Hint) []Hint {
	out := []Hint{{Preferred: true}}
	for _, hints := range resources {
		var next []Hint
		seen := map[Hint]bool{}
		for _, a := range out {
			for _, b := range hints {
				h, ok := both(a, b)
				if ok && !seen[h] {
					seen[h] = true
					next = append(next, h)
				}
			}
		}
		out = next
	}
	return out
}

// both merges two hints. It returns false if they have no node in common.
func both(a, b Hint) (Hint, bool) {
	preferred := a.Preferred && b.Preferred
	switch {
	case a.Nodes == 0:
		return Hint{b.Nodes, preferred}, true
	case b.Nodes == 0:
		return Hint{a.Nodes, preferred}, true
	}
	nodes := a.Nodes & b.Nodes
	return Hint{nodes, preferred && a.Nodes == b.Nodes}, nodes != 0
}

// better reports whether a merged hint is better than another one. Of hints that are not preferred,
// those are best that have as many nodes as the resource needs that needs the most; then those that
// have fewer, the more the better; then those that have more, the fewer the better.
func (p *Policy) better(a, b Hint, wide int) bool {
	if a.Preferred != b.Preferred {
		return a.Preferred
	}
	if !a.Preferred {
		over := func(h Hint) bool { return h.Nodes.Count() > wide }
		switch m, n := a.Nodes.Count(), b.Nodes.Count(); {
		case over(a) != over(b):
			return over(b)
		case !over(a) && m != n:
			return m > n
		}
	}
	return p.narrower(a.Nodes, b.Nodes)
}

// narrower reports whether a set is better than another one by itself: it has fewer nodes, or they
// are closer to each other, or have the lower numbers.
func (p *Policy) narrower(a, b Mask) bool {
	if a.Count() != b.Count() {
		return a.Count() < b.Count()
	}
	if p.Distances != nil && !p.Guarantees() {
		if x, y := p.distance(a), p.distance(b); x != y {
			return x < y
		}
	}
	return a < b
}

// distance returns how far the nodes of a set are from each other, together.
func (p *Policy) distance(m Mask) int {
	sum := 0
	for _, from := range m.Nodes() {
		for _, to := range m.Nodes() {
			if row := p.Distances[from]; to < len(row) {
				sum += row[to]
			}
		}
	}
	return sum
}
