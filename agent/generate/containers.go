package generate

import (
	"iter"

	v1 "k8s.io/api/core/v1"
)

// allContainers yields every container of the pod, of every kind: init containers (sidecars among them), containers, ephemeral ones.
func allContainers(pod *v1.Pod) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for i := range pod.Spec.InitContainers {
			if !yield(&pod.Spec.InitContainers[i]) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i]) {
				return
			}
		}
		for i := range pod.Spec.EphemeralContainers {
			if !yield((*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

// isSidecar says whether an init container keeps running beside the containers.
func isSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// isTrue says whether an optional flag is set and true.
func isTrue(flag *bool) bool { return flag != nil && *flag }

// longRunning yields the containers and the sidecars: those that run as long as the pod does.
func longRunning(pod *v1.Pod) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for i := range pod.Spec.InitContainers {
			if c := &pod.Spec.InitContainers[i]; isSidecar(c) && !yield(c) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i]) {
				return
			}
		}
	}
}
