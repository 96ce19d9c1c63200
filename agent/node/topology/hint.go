// Package topology decides on which NUMA nodes a container gets its pieces of the node: the
// topology manager with its policies none, best-effort, restricted and single-numa-node.
//
// Purpose: who gives out devices, CPUs or memory says on which sets of NUMA nodes a container could
// get them ([Hint], [Hints]). [Policy.Merge] merges what all say into the one set that suits them
// best, and says whether the pod may run with it, as a kubelet's topology manager (release 1.36)
// decides. [ConfigFrom] reads the policy from the config.
//
// Truth owned: none; the machine's NUMA nodes are the kernel's.
//
// Concurrency: all functions but ConfigFrom are pure.
package topology

import "math/bits"

// Mask is a set of NUMA nodes. The empty set stands for any nodes.
type Mask uint64

// maxNode is the highest number of a NUMA node that a mask can have.
const maxNode = 63

// MaskOf returns the set of some nodes. Nodes that no mask can have are left out.
func MaskOf(nodes ...int) Mask {
	var m Mask
	for _, n := range nodes {
		if n >= 0 && n <= maxNode {
			m |= 1 << n
		}
	}
	return m
}

// Has reports whether the set has a node.
func (m Mask) Has(node int) bool { return MaskOf(node)&m != 0 }

// Count returns how many nodes the set has.
func (m Mask) Count() int { return bits.OnesCount64(uint64(m)) }

// Nodes returns the nodes of the set, sorted.
func (m Mask) Nodes() []int {
	var out []int
	for n := range maxNode + 1 {
		if m.Has(n) {
			out = append(out, n)
		}
	}
	return out
}

// Subsets calls yield with each set of some of the nodes that is not empty, the smallest sets
// first.
func (m Mask) Subsets(yield func(Mask) bool) {
	nodes := m.Nodes()
	for size := 1; size <= len(nodes); size++ {
		if !subsets(nodes, 0, size, yield) {
			return
		}
	}
}

// subsets calls yield with each set of that many of the nodes together with those of from. It
// reports whether the caller wants more.
func subsets(nodes []int, from Mask, size int, yield func(Mask) bool) bool {
	if size == 0 {
		return yield(from)
	}
	for i := range nodes {
		if !subsets(nodes[i+1:], from|MaskOf(nodes[i]), size-1, yield) {
			return false
		}
	}
	return true
}

// Hint says that a container could get what it wants of a resource from these NUMA nodes, all of
// them together.
type Hint struct {
	Nodes Mask
	// Preferred says that no smaller set of nodes could ever have it.
	Preferred bool
}

// Hints returns the hints for a resource: those of the subsets of all nodes that have it now, and
// how many nodes the smallest set has that could have it. could reports whether a set could have it
// if nobody else had anything, has whether it has it now.
func Hints(all Mask, could, has func(Mask) bool) (out []Hint, smallest int) {
	out, smallest = []Hint{}, all.Count()
	for m := range all.Subsets {
		if m.Count() < smallest && could(m) {
			smallest = m.Count()
		}
		if has(m) {
			out = append(out, Hint{Nodes: m})
		}
	}
	for i := range out {
		out[i].Preferred = out[i].Nodes.Count() == smallest
	}
	return out, smallest
}
