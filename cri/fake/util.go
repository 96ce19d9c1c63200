package fake

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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
	return slices.SortedFunc(maps.Values(n.sandboxes), func(a, b *sandbox) int { return cmp.Compare(a.seq, b.seq) })
}

// containersInOrder returns the containers, oldest first. The caller holds the lock.
func (n *node) containersInOrder() []*container {
	return slices.SortedFunc(maps.Values(n.containers), func(a, b *container) int { return cmp.Compare(a.seq, b.seq) })
}

// members returns a sandbox's containers, oldest first. The caller holds the lock.
func (n *node) members(sandboxID string) []*container {
	return slices.DeleteFunc(n.containersInOrder(), func(c *container) bool { return c.sandboxID != sandboxID })
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
