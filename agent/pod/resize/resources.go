package resize

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Resources are the requests and limits of a pod as a whole and of its containers, by name. A
// resize changes the cpu and memory in them.
type Resources struct {
	Pod        *v1.ResourceRequirements           `json:"pod,omitempty"`
	Containers map[string]v1.ResourceRequirements `json:"containers,omitempty"`
}

// Of returns what the pod's spec asks for.
func Of(pod *v1.Pod) Resources {
	r := Resources{Pod: pod.Spec.Resources.DeepCopy(), Containers: map[string]v1.ResourceRequirements{}}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			r.Containers[list[i].Name] = *list[i].Resources.DeepCopy()
		}
	}
	return r
}

// Same reports whether two pods ask for the same.
func Same(a, b *v1.Pod) bool { return equality.Semantic.DeepEqual(Of(a), Of(b)) }

// On returns the pod with these resources in place of its own. It returns the same pointer if they
// are its own. The pod is not modified.
func (r Resources) On(pod *v1.Pod) *v1.Pod {
	if equality.Semantic.DeepEqual(r, Of(pod)) {
		return pod
	}
	out := *pod
	out.Spec.Resources = r.Pod.DeepCopy()
	out.Spec.InitContainers = r.over(pod.Spec.InitContainers)
	out.Spec.Containers = r.over(pod.Spec.Containers)
	return &out
}

func (r Resources) over(containers []v1.Container) []v1.Container {
	if containers == nil {
		return nil
	}
	out := make([]v1.Container, len(containers))
	copy(out, containers)
	for i := range out {
		if have, ok := r.Containers[out[i].Name]; ok {
			out[i].Resources = *have.DeepCopy()
		}
	}
	return out
}

// resizable are the resources that a resize may change.
var resizable = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}

// Effective returns the cpu and memory that a container is limited to: its own requests, and its
// own limits or else the pod's.
func Effective(pod *v1.Pod, c *v1.Container) v1.ResourceRequirements {
	out := v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	for _, name := range resizable {
		if q, ok := c.Resources.Requests[name]; ok {
			out.Requests[name] = q
		}
		limit := c.Resources.Limits[name]
		if limit.IsZero() && pod.Spec.Resources != nil {
			limit = pod.Spec.Resources.Limits[name]
		}
		if !limit.IsZero() {
			out.Limits[name] = limit
		}
	}
	return out
}

// Container returns the pod's app container or sidecar of that name, nil if it has none.
func Container(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// State is a resize that was asked for and is not done: what the pod may use, and what its running
// containers were last given.
//
//	asked for ──── does not fit: Pending ◀─┐
//	   │                 └────── fits later ┘
//	   │ fits: Allocated is what is asked for, InProgress
//	   ▼
//	given to the containers, one after the other: Actuated
//	   │
//	   ▼
//	done: there is no State any more
type State struct {
	// Allocated is what the pod may use.
	Allocated Resources `json:"allocated"`
	// Actuated is what each running instance was last given, by its id. It has the pod's own limits
	// if the instance has none.
	Actuated map[string]v1.ResourceRequirements `json:"actuated,omitempty"`
	// Pod is what the pod as a whole was last given.
	Pod *v1.ResourceRequirements `json:"pod,omitempty"`
	// Pending says why the pod may not use what is asked for, nil if it may.
	Pending *Pending `json:"pending,omitempty"`
	// InProgress says that some of what is allocated was not given yet. Error is what kept it from
	// being given.
	InProgress bool   `json:"inProgress,omitempty"`
	Error      string `json:"error,omitempty"`
}

// Pending is why a resize is not carried out: the condition's reason and message.
type Pending struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Instance is a running instance of a container.
type Instance struct {
	ID, Name string
}

// Begin returns the state of a pod with these instances that has had what before asks for.
func Begin(before *v1.Pod, running []Instance) *State {
	s := &State{
		Allocated: Of(before),
		Pod:       before.Spec.Resources.DeepCopy(),
		Actuated:  map[string]v1.ResourceRequirements{},
	}
	s.Note(before, running)
	return s
}

// Note compares the state with the instances that run, and changes it. Instances that are not known
// were made with what is allocated, which pod has. Instances that are gone are dropped.
func (s *State) Note(pod *v1.Pod, running []Instance) {
	if s.Actuated == nil {
		s.Actuated = map[string]v1.ResourceRequirements{}
	}
	live := map[string]bool{}
	for _, in := range running {
		live[in.ID] = true
		if c := Container(pod, in.Name); c != nil {
			if _, known := s.Actuated[in.ID]; !known {
				s.Actuated[in.ID] = Effective(pod, c)
			}
		}
	}
	maps.DeleteFunc(s.Actuated, func(id string, _ v1.ResourceRequirements) bool { return !live[id] })
}
