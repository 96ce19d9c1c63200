package preempt

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/cgroups"
	"github.com/berthd/berth/internal/pods"
)

// lacks is what is missing, by resource, in the order in which admission found it.
type lacks []admit.Shortage

// without returns what is still missing when these pods are gone.
func (l lacks) without(gone []*v1.Pod) lacks {
	var out lacks
	for _, s := range l {
		for _, pod := range gone {
			s.Amount -= admit.Requested(pod, s.Resource)
		}
		if s.Amount > 0 {
			out = append(out, s)
		}
	}
	return out
}

// distance says how far a pod's requests are from what is missing: the sum, over the resources, of
// the squared part that stays missing. It is 0 for a pod that has enough of everything.
func (l lacks) distance(pod *v1.Pod) float64 {
	sum := 0.0
	for _, s := range l {
		if rest := s.Amount - admit.Requested(pod, s.Resource); rest > 0 {
			part := float64(rest) / float64(s.Amount)
			sum += part * part
		}
	}
	return sum
}

// classes are the QoS classes in the order in which pods are spared: the first class is the last to
// leave.
func classes() []v1.PodQOSClass {
	return []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}
}

// pick returns the candidates that must leave so that nothing is missing, those of the lowest QoS
// class first. ok is false if all of them together have too little.
//
// A class loses only what would be missing even without all lower classes. In a class, the pod that
// comes nearest to what is missing leaves first, so that few pods have to.
func pick(missing lacks, candidates []*v1.Pod) (chosen []*v1.Pod, ok bool) {
	if len(missing.without(candidates)) > 0 {
		return nil, false
	}
	byClass := map[v1.PodQOSClass][]*v1.Pod{}
	for _, pod := range candidates {
		class := cgroups.QOSClass(pod)
		byClass[class] = append(byClass[class], pod)
	}
	for i, class := range classes() {
		left := missing.without(chosen)
		for _, lower := range classes()[i+1:] {
			left = left.without(byClass[lower])
		}
		chosen = append(fewest(left, byClass[class]), chosen...)
	}
	return chosen, true
}

// fewest returns the pods of a list that leave until nothing is missing.
func fewest(missing lacks, list []*v1.Pod) []*v1.Pod {
	list = slices.Clone(list)
	var out []*v1.Pod
	for len(missing) > 0 && len(list) > 0 {
		best := slices.MinFunc(list, func(x, y *v1.Pod) int {
			return cmp.Or(cmp.Compare(missing.distance(x), missing.distance(y)), compare(x, y))
		})
		out = append(out, best)
		missing = missing.without([]*v1.Pod{best})
		list = slices.DeleteFunc(list, func(pod *v1.Pod) bool { return pod == best })
	}
	return out
}

// compare orders pods that would do equally well: the smaller one leaves first, by its memory,
// then by its cpu, as a kubelet orders them. Of pods that request the same, the one of the lower
// priority leaves first.
func compare(x, y *v1.Pod) int {
	requested := func(name v1.ResourceName) int {
		return cmp.Compare(admit.Requested(x, name), admit.Requested(y, name))
	}
	return cmp.Or(requested(v1.ResourceMemory), requested(v1.ResourceCPU),
		cmp.Compare(pods.Priority(x), pods.Priority(y)), cmp.Compare(pods.FullName(x), pods.FullName(y)))
}
