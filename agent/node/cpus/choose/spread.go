package choose

import (
	"iter"
	"math"
	"slices"
)

// part is how many CPUs come from one NUMA node.
type part struct{ node, count int }

// spread returns in which parts CPUs are taken from NUMA nodes: in equal ones, from as few nodes as
// can give them. What does not divide comes in groups from some of these nodes, so that all nodes
// of the machine keep as equal numbers of free CPUs as possible. It returns nothing if no nodes can
// give equal parts.
func (t *taking) spread(group int) []part {
	var free dealing
	for _, g := range t.free.within(t.nodes...) {
		free = append(free, part{g.id, len(g.cpus)})
	}
	groups := t.needed / group
	perNode := ceil(ceil(len(t.machine), group), t.machine.count(node))
	for k := ceil(groups, perNode); k <= min(groups, len(free)); k++ {
		var best []part
		least := math.MaxInt
		for among := range combinations(free.indexes(), k) {
			if parts, uneven := free.deal(among, groups, group); uneven < least {
				best, least = parts, uneven
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}

func ceil(a, b int) int { return (a + b - 1) / b }

// dealing are the CPUs that NUMA nodes have left.
type dealing []part

func (d dealing) indexes() []int {
	out := make([]int, len(d))
	for i := range out {
		out[i] = i
	}
	return out
}

// uneven says how different the numbers are: the sum of their squares, as their sum is always the
// same.
func (d dealing) uneven() int {
	sum := 0
	for _, p := range d {
		sum += p.count * p.count
	}
	return sum
}

// take returns the parts when CPUs are taken from some of the nodes, and what is left then.
func (d dealing) take(from []int, count int) ([]part, dealing) {
	left := slices.Clone(d)
	var parts []part
	for _, i := range from {
		left[i].count -= count
		parts = append(parts, part{left[i].node, count})
	}
	return parts, left
}

// deal returns the best parts of some nodes, and how uneven they leave the machine: the largest
// number if they cannot give equal parts.
func (d dealing) deal(among []int, groups, group int) (best []part, least int) {
	least = math.MaxInt
	equal := groups / len(among)
	there := 0
	for _, i := range among {
		if there += d[i].count / group; d[i].count < equal*group {
			return nil, least
		}
	}
	if there < groups {
		return nil, least
	}
	parts, left := d.take(among, equal*group)
	rest := groups - equal*len(among)
	if rest == 0 {
		return parts, left.uneven()
	}
	able := slices.DeleteFunc(slices.Clone(among), func(i int) bool { return left[i].count < group })
	for k := len(able); k > 0; k-- {
		for some := range combinations(able, k) {
			more, after, ok := left.rest(some, rest, group)
			if ok && after.uneven() < least {
				best, least = slices.Concat(parts, more), after.uneven()
			}
		}
	}
	return best, least
}

// rest deals single groups to nodes in turn. It reports whether they have that many.
func (d dealing) rest(nodes []int, groups, group int) (parts []part, left dealing, ok bool) {
	left = d
	for groups > 0 {
		able := slices.DeleteFunc(slices.Clone(nodes), func(i int) bool { return left[i].count < group })
		if len(able) == 0 {
			return nil, left, false
		}
		able = able[:min(len(able), groups)]
		var more []part
		more, left = left.take(able, group)
		parts, groups = append(parts, more...), groups-len(able)
	}
	return parts, left, true
}

// combinations returns all choices of k of these numbers, in order.
func combinations(of []int, k int) iter.Seq[[]int] {
	return func(yield func([]int) bool) { combine(of, k, nil, yield) }
}

func combine(of []int, k int, chosen []int, yield func([]int) bool) bool {
	if k == 0 {
		return yield(slices.Clone(chosen))
	}
	for i := range len(of) - k + 1 {
		if !combine(of[i+1:], k-1, append(chosen, of[i]), yield) {
			return false
		}
	}
	return true
}
