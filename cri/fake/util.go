package fake

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
)

// clone copies a message, so that the fake shares its messages with nobody.
func clone[M proto.Message](m M) M {
	return proto.Clone(m).(M)
}

// newID returns an id that looks like one of containerd's, and its place in the order of all ids.
// The caller holds the lock.
func (n *node) newID(kind string) (id string, seq int) {
	n.seq++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", kind, n.seq))
	return hex.EncodeToString(sum[:]), n.seq
}

// sandboxesInOrder returns the sandboxes, oldest first. The caller holds the lock.
func (n *node) sandboxesInOrder() []*sandbox {
	return n.chosenSandboxes(func(*sandbox) bool { return true })
}

// chosenSandboxes returns those sandboxes that are wanted, oldest first. The caller holds the lock.
func (n *node) chosenSandboxes(wanted func(*sandbox) bool) []*sandbox {
	return slices.SortedFunc(chosen(n.sandboxes, wanted), func(a, b *sandbox) int { return cmp.Compare(a.seq, b.seq) })
}

// containersInOrder returns the containers, oldest first. The caller holds the lock.
func (n *node) containersInOrder() []*container {
	return n.chosenContainers(func(*container) bool { return true })
}

// chosenContainers returns those containers that are wanted, oldest first. The caller holds the
// lock.
func (n *node) chosenContainers(wanted func(*container) bool) []*container {
	return slices.SortedFunc(chosen(n.containers, wanted), func(a, b *container) int { return cmp.Compare(a.seq, b.seq) })
}

// members returns a sandbox's containers, oldest first. The caller holds the lock.
func (n *node) members(sandboxID string) []*container {
	return n.chosenContainers(func(c *container) bool { return c.sandboxID == sandboxID })
}

// chosen returns those values of a map that are wanted.
func chosen[V any](m map[string]V, wanted func(V) bool) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range m {
			if wanted(v) && !yield(v) {
				return
			}
		}
	}
}

// selects reports whether labels have everything that the selector asks for.
func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
