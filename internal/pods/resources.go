package pods

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// ResourceNames returns the names of the resources in a list: first those that every node has, in
// the order in which a kubelet counts them, then the others by name.
func ResourceNames(list v1.ResourceList) []v1.ResourceName {
	first := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods}
	rank := func(name v1.ResourceName) int {
		if i := slices.Index(first, name); i >= 0 {
			return i
		}
		return len(first)
	}
	return slices.SortedFunc(maps.Keys(list), func(a, b v1.ResourceName) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
}
