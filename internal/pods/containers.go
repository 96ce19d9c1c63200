package pods

import (
	"iter"

	v1 "k8s.io/api/core/v1"
)

// Containers yields every container of a pod: init containers (sidecars among them), containers,
// ephemeral containers.
func Containers(spec *v1.PodSpec) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for i := range spec.InitContainers {
			if !yield(&spec.InitContainers[i]) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(&spec.Containers[i]) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			// The API keeps the common fields of both types the same, so that this conversion
			// compiles.
			if !yield((*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

// Starting yields the init containers and the containers of a pod, in the order of their starts.
// The value says whether the container ends before the next ones start.
func Starting(pod *v1.Pod) iter.Seq2[*v1.Container, bool] {
	return func(yield func(*v1.Container, bool) bool) {
		for i := range pod.Spec.InitContainers {
			if c := &pod.Spec.InitContainers[i]; !yield(c, !Sidecar(c)) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i], false) {
				return
			}
		}
	}
}

// EndedBefore returns the names of the init containers that have ended when a container of the pod
// starts. There are none for an ephemeral container, which starts in no order.
func EndedBefore(pod *v1.Pod, container string) []string {
	var out []string
	for c, ends := range Starting(pod) {
		switch {
		case c.Name == container:
			return out
		case ends:
			out = append(out, c.Name)
		}
	}
	return nil
}
