package admit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// enoughRoom refuses a pod whose requests the node has no room for beside the admitted pods (rows 18 and 23). The resources are asked about in a kubelet's order:
// pods, cpu, memory, ephemeral-storage, then hugepages and extended resources by name. A node that does not speak of huge pages has none. An extended resource that it does not
// have is not asked about: no node without device plugins has one, and the pod is told that it has no effect.
func enoughRoom(in Input) *Rejection {
	if in.Allocatable == nil {
		return nil
	}
	if most, limited := in.Allocatable[v1.ResourcePods]; limited && int64(len(in.Others)) >= most.Value() {
		return outOf(v1.ResourcePods, 1, int64(len(in.Others)), most.Value())
	}
	var short []Rejection
	wanted := requests(in.Pod)
	for _, name := range counted(wanted) {
		capacity, known := in.Allocatable[name]
		want := amount(name, wanted)
		if want <= 0 || !known && !strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			continue
		}
		holders := holding(name, in.Others)
		used := int64(0)
		for _, h := range holders {
			used += h.amount
		}
		if most := amount(name, v1.ResourceList{name: capacity}); want > most-used {
			r := outOf(name, want, used, most)
			r.Detail = told(name, want, most, holders)
			short = append(short, *r)
		}
	}
	if len(short) == 0 {
		return nil
	}
	first := short[0]
	first.Also = short[1:]
	for _, r := range first.Also {
		first.Detail += "; also " + r.Reason + ": " + r.Message + " (" + r.Detail + ")"
	}
	return &first
}

// Oversized returns a rejection for each resource of which a pod asks for more than the machine has, even where no other pod runs; none where capacity is nil.
func Oversized(pod *v1.Pod, capacity v1.ResourceList) []Rejection {
	r := enoughRoom(Input{Pod: pod, Allocatable: capacity})
	if r == nil {
		return nil
	}
	return append([]Rejection{*r}, r.Also...)
}

// outOf is the rejection, in upstream's words; amounts are in thousandths of a cpu, bytes, or pieces.
func outOf(name v1.ResourceName, requested, used, capacity int64) *Rejection {
	return &Rejection{
		Reason:  "OutOf" + string(name),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, requested, used, capacity),
	}
}

// requests are what a pod needs of the node: sidecars, init containers, overhead and resources of the pod as a whole are in it.
func requests(pod *v1.Pod) v1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{})
}

// counted returns the names of the resources that are asked for, in the order in which they are asked about.
func counted(list v1.ResourceList) []v1.ResourceName {
	first := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	rank := func(name v1.ResourceName) int {
		if i := slices.Index(first, name); i >= 0 {
			return i
		}
		return len(first)
	}
	var names []v1.ResourceName
	for name := range list {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b v1.ResourceName) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(string(a), string(b)))
	})
	return names
}

// amount returns thousandths of a cpu, or whole units of what else there is.
func amount(name v1.ResourceName, list v1.ResourceList) int64 {
	q := list[name]
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// holder is a pod and what it was given of one resource.
type holder struct {
	pod    *v1.Pod
	amount int64
}

// holding returns the pods that have some of a resource, those with the most first.
func holding(name v1.ResourceName, pods []*v1.Pod) []holder {
	var out []holder
	for _, pod := range pods {
		if n := amount(name, requests(pod)); n > 0 {
			out = append(out, holder{pod, n})
		}
	}
	slices.SortFunc(out, func(a, b holder) int {
		return cmp.Or(cmp.Compare(b.amount, a.amount), strings.Compare(a.pod.Namespace+"/"+a.pod.Name, b.pod.Namespace+"/"+b.pod.Name))
	})
	return out
}

// told says for people where the room has gone.
func told(name v1.ResourceName, want, most int64, holders []holder) string {
	if want > most {
		return fmt.Sprintf("no pod of this node can request more %s than %d", name, most)
	}
	const shown = 3
	var names []string
	for _, h := range holders[:min(shown, len(holders))] {
		names = append(names, fmt.Sprintf("%s/%s (%d)", h.pod.Namespace, h.pod.Name, h.amount))
	}
	text := fmt.Sprintf("%s is requested by %s", name, strings.Join(names, ", "))
	if more := len(holders) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
