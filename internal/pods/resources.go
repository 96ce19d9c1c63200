package pods

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

// Claimed reports whether a container has an extended resource by the resource claim that the
// scheduler made for the pod, and not from a device plugin (KEP-5004).
func Claimed(pod *v1.Pod, container string, name v1.ResourceName) bool {
	s := pod.Status.ExtendedResourceClaimStatus
	return s != nil && slices.ContainsFunc(s.RequestMappings, func(m v1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == container && m.ResourceName == string(name)
	})
}

// WithoutClaimed returns the pod without the resources that its containers have by a claim; see
// [Claimed]. The pod itself is not changed.
func WithoutClaimed(pod *v1.Pod) *v1.Pod {
	if pod.Status.ExtendedResourceClaimStatus == nil {
		return pod
	}
	out := pod.DeepCopy()
	for c := range Starting(out) {
		for _, list := range []v1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			maps.DeleteFunc(list, func(name v1.ResourceName, _ resource.Quantity) bool {
				return Claimed(pod, c.Name, name)
			})
		}
	}
	return out
}
