package resize

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// Fit returns nil if a pod may have what it asks for, or else why not. allocated is the pod with
// what it has. others are the other pods of the node with what they were allocated. node is what
// pods can have of the node. A resource that does not grow always fits. A resource that is more
// than the node has is infeasible. A resource that the others leave no room for is deferred.
func Fit(asked, allocated *v1.Pod, others []*v1.Pod, node v1.ResourceList) *Pending {
	want, have := requests(asked), requests(allocated)
	for _, name := range resizable {
		capacity, limited := node[name]
		if !limited || amount(name, want) <= amount(name, have) {
			continue
		}
		requested, most := amount(name, want), value(name, capacity.MilliValue(), capacity.Value())
		if requested > most {
			return &Pending{
				v1.PodReasonInfeasible,
				fmt.Sprintf("Node didn't have enough capacity: %s, requested: %d, capacity: %d", name, requested, most),
			}
		}
	}
	for _, name := range resizable {
		capacity, limited := node[name]
		if !limited || amount(name, want) <= amount(name, have) {
			continue
		}
		used := int64(0)
		for _, other := range others {
			used += amount(name, requests(other))
		}
		requested, most := amount(name, want), value(name, capacity.MilliValue(), capacity.Value())
		if requested+used > most {
			return &Pending{
				v1.PodReasonDeferred,
				fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name,
					requested, used, most),
			}
		}
	}
	return nil
}

func requests(pod *v1.Pod) v1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{})
}

// amount returns thousandths of a cpu, or bytes.
func amount(name v1.ResourceName, list v1.ResourceList) int64 {
	q := list[name]
	return value(name, q.MilliValue(), q.Value())
}

func value(name v1.ResourceName, milli, whole int64) int64 {
	if name == v1.ResourceCPU {
		return milli
	}
	return whole
}

// summary is the data of the events about a resize, as in a kubelet's.
type summary struct {
	InitContainers []named `json:"initContainers,omitempty"`
	Containers     []named `json:"containers,omitempty"`
	Generation     int64   `json:"generation"`
	Error          string  `json:"error,omitempty"`
}

type named struct {
	Name      string                  `json:"name"`
	Resources v1.ResourceRequirements `json:"resources,omitzero"`
}

// Message returns the message of an event about a resize: what happened, and the resources that the
// pod is to have, as JSON.
func Message(what string, pod *v1.Pod, problem string) string {
	s := summary{Generation: pod.Generation, Error: problem}
	for i := range pod.Spec.InitContainers {
		s.InitContainers = append(s.InitContainers,
			named{pod.Spec.InitContainers[i].Name, pod.Spec.InitContainers[i].Resources})
	}
	for i := range pod.Spec.Containers {
		s.Containers = append(s.Containers, named{pod.Spec.Containers[i].Name, pod.Spec.Containers[i].Resources})
	}
	text, err := json.Marshal(s)
	if err != nil {
		return what // quantities always have a JSON form
	}
	return what + ": " + string(text)
}
