package admit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	"github.com/berthd/berth/internal/pods"
)

// enoughRoom refuses a pod whose requests do not fit beside the admitted pods. It checks the
// resources in the order of upstream's NodeResourcesFit (fitsRequest): pods, cpu, memory,
// ephemeral-storage, then huge pages and extended resources by name.
//
// A node whose allocatable names no huge pages has none. An extended resource that allocatable does
// not name is not checked: the devices of device plugins are given out by their own manager, and a
// request for a resource that the node never had is without effect, as on a kubelet.
func enoughRoom(in Input) *Rejection {
	if in.Allocatable == nil {
		return nil
	}
	var short []Rejection
	if most, limited := in.Allocatable[v1.ResourcePods]; limited && int64(len(in.Others)) >= most.Value() {
		short = append(short, *outOf(v1.ResourcePods, 1, int64(len(in.Others)), most.Value()))
	}
	wanted := in.requests(in.Pod)
	held := make([]v1.ResourceList, len(in.Others))
	for i, pod := range in.Others {
		held[i] = in.requests(pod)
	}
	for _, name := range pods.ResourceNames(wanted) {
		capacity, known := in.Allocatable[name]
		want := amount(name, wanted)
		if want <= 0 || !known && !strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			continue
		}
		used := int64(0)
		for _, list := range held {
			used += amount(name, list)
		}
		if most := amount(name, v1.ResourceList{name: capacity}); want > most-used {
			r := outOf(name, want, used, most)
			r.Detail = occupants(name, want, most, holding(name, in.Others, held))
			short = append(short, *r)
		}
	}
	if len(short) == 0 {
		return nil
	}
	first := short[0]
	first.Also = short[1:]
	details := []string{first.Detail}
	for _, r := range first.Also {
		details = append(details, "also "+r.Reason+": "+r.Message+" ("+r.Detail+")")
		first.Lacks = append(first.Lacks, r.Lacks...)
	}
	first.Detail = strings.Join(slices.DeleteFunc(details, func(s string) bool { return s == "" }), "; ")
	return &first
}

// Oversized returns a rejection for each resource of which a pod requests more than an empty node
// gives; none if allocatable is nil.
func Oversized(pod *v1.Pod, allocatable v1.ResourceList) []Rejection {
	r := enoughRoom(Input{Pod: pod, Allocatable: allocatable})
	if r == nil {
		return nil
	}
	return append([]Rejection{*r}, r.Also...)
}

// outOf returns the rejection, in upstream's words. CPU is in thousandths of a core, memory and
// storage are in bytes, other resources are counted.
func outOf(name v1.ResourceName, requested, used, capacity int64) *Rejection {
	return &Rejection{
		Reason: "OutOf" + string(name),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name,
			requested, used, capacity),
		Lacks: []Shortage{{name, requested + used - capacity}},
	}
}

// requests returns what a pod requests of the node, with sidecars, init containers, overhead and
// the resources of the whole pod.
func requests(pod *v1.Pod) v1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{})
}

// requests returns what a pod requests of the node, without what it has by a resource claim.
func (in Input) requests(pod *v1.Pod) v1.ResourceList {
	if in.Node.ByClaim {
		pod = pods.WithoutClaimed(pod)
	}
	return requests(pod)
}

// Requested returns how much of a resource a pod requests: thousandths of a core for cpu, whole
// units for other resources. Each pod is one of the pods that a node can have.
func Requested(pod *v1.Pod, name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	return amount(name, requests(pod))
}

// Total returns what pods request together, with their number ("pods").
func Total(list []*v1.Pod) v1.ResourceList {
	total := v1.ResourceList{}
	for _, pod := range list {
		for name, q := range requests(pod) {
			sum := total[name]
			sum.Add(q)
			total[name] = sum
		}
	}
	total[v1.ResourcePods] = *apiresource.NewQuantity(int64(len(list)), apiresource.DecimalSI)
	return total
}

// amount returns thousandths of a core for cpu, and whole units for other resources.
func amount(name v1.ResourceName, list v1.ResourceList) int64 {
	q := list[name]
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// holder is a pod and how much of one resource it has.
type holder struct {
	pod    *v1.Pod
	amount int64
}

// holding returns the pods that have some of a resource; the pod with the most comes first. held is
// what each of them has.
func holding(name v1.ResourceName, running []*v1.Pod, held []v1.ResourceList) []holder {
	var out []holder
	for i, pod := range running {
		if n := amount(name, held[i]); n > 0 {
			out = append(out, holder{pod, n})
		}
	}
	slices.SortFunc(out, func(a, b holder) int {
		return cmp.Or(cmp.Compare(b.amount, a.amount), strings.Compare(pods.FullName(a.pod), pods.FullName(b.pod)))
	})
	return out
}

// occupants says, for people, which pods have the resource.
func occupants(name v1.ResourceName, want, most int64, holders []holder) string {
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
