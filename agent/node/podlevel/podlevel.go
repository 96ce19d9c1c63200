// Package podlevel answers what the managers of CPUs and memory ask about a pod with resources of
// its own (spec.resources).
//
// Purpose: under the feature gate PodLevelResourceManagers (KEP-5526), such a pod can have CPUs and
// memory of certain NUMA nodes. With the scope pod of the topology manager, it has them as a whole,
// and gives its containers parts of them. [Rules] says for which pods and containers this is so,
// and [Pool] whether enough is left for those that share.
//
// Truth owned: none. Concurrency: the functions are pure.
package podlevel

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/berthd/berth/cgroups"
	"github.com/berthd/berth/internal/pods"
)

// Rules are what the node's config says about pods with resources of their own.
type Rules struct {
	// Managed says that such pods can have CPUs and memory for themselves (the feature gate
	// PodLevelResourceManagers).
	Managed bool
	// ByPod says that the topology manager looks at a pod as a whole: its scope is pod, and its
	// policy is not none.
	ByPod bool
}

// IsManaged reports whether a pod has resources of its own that the managers look at.
func (r Rules) IsManaged(pod *v1.Pod) bool { return r.Managed && resource.IsPodLevelResourcesSet(pod) }

// Whole reports whether a pod gets its CPUs and its memory as a whole.
func (r Rules) Whole(pod *v1.Pod) bool {
	return r.ByPod && r.IsManaged(pod) && cgroups.QOSClass(pod) == v1.PodQOSGuaranteed
}

// Own reports whether a container may have CPUs and memory for itself: its pod is Guaranteed and,
// if that is so because of resources of its own, the container for itself is like a Guaranteed pod.
func (r Rules) Own(pod *v1.Pod, c *v1.Container) bool {
	switch {
	case cgroups.QOSClass(pod) != v1.PodQOSGuaranteed:
		return false
	case !resource.IsPodLevelResourcesSet(pod):
		return true
	}
	return r.Managed && guaranteed(c, v1.ResourceCPU) && guaranteed(c, v1.ResourceMemory)
}

// guaranteed reports whether a container requests some of a resource, and no less than its limit.
func guaranteed(c *v1.Container, name v1.ResourceName) bool {
	request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
	return !request.IsZero() && request.Cmp(limit) == 0
}

// Where a container's part comes from, and what kind of part it is, in the words of the kubelet's
// metrics.
const (
	FromNode      = "node"
	FromPod       = "pod"
	ExclusiveNode = "node_exclusive"
	ExclusivePod  = "pod_exclusive"
	SharedPod     = "pod_shared"
)

// Metrics are the metrics of a manager of CPUs or memory where [Rules.Managed] is true.
type Metrics interface {
	// Allocated counts a container that got a part of a resource from the node ([FromNode]) or from
	// its pod ([FromPod]), or a container or a pod that did not get it.
	Allocated(resource v1.ResourceName, source string, failed bool)
	// Assigned counts a container by the kind of its part.
	Assigned(resource v1.ResourceName, kind string)
}

// Amounts are amounts by the resource.
type Amounts = map[v1.ResourceName]uint64

// EmptyPool is the error of a pod whose containers would share nothing, in the kubelet's words.
type EmptyPool struct{ text string }

// Error says which containers lack what.
func (e *EmptyPool) Error() string { return "pod rejected, " + e.text }

// Pool returns an [EmptyPool] if containers of a pod share what the pod has, and nothing is left of
// a resource when those have theirs that run at the same time. total is what the pod has, own
// returns what a container has for itself; nothing if it shares.
func Pool(pod *v1.Pod, total Amounts, own func(*v1.Container) Amounts) error {
	taken, shared := Amounts{}, false
	for c, ends := range pods.Starting(pod) {
		has := own(c)
		switch {
		case len(has) > 0 && !ends:
			for name, amount := range has {
				taken[name] += amount
			}
		case len(has) > 0: // gives it back before the next container starts
		case !ends:
			shared = true
		default:
			if name, empty := exhausted(total, taken); empty {
				return &EmptyPool{fmt.Sprintf("pod has shared init containers but no %s available for them", plural(name))}
			}
		}
	}
	if name, empty := exhausted(total, taken); empty && shared {
		left := v1.ResourceMemory
		if name == v1.ResourceCPU {
			left = name
		}
		return &EmptyPool{fmt.Sprintf("sum of exclusive container %s requests equals pod budget, leaving no %s for "+
			"shared containers", name, plural(left))}
	}
	return nil
}

// exhausted returns a resource of which nothing is left, if there is one.
func exhausted(total, taken Amounts) (v1.ResourceName, bool) {
	for _, name := range slices.Sorted(maps.Keys(total)) {
		if taken[name] >= total[name] {
			return name, true
		}
	}
	return "", false
}

func plural(name v1.ResourceName) string {
	if name == v1.ResourceCPU {
		return "cpus"
	}
	return string(name)
}
