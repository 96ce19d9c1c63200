package generate

import (
	"iter"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
)

// isTrue says whether an optional flag is set and true.
func isTrue(flag *bool) bool { return flag != nil && *flag }

// longRunning yields the containers and the sidecars: those that run as long as the pod does.
func longRunning(pod *v1.Pod) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for i := range pod.Spec.InitContainers {
			if c := &pod.Spec.InitContainers[i]; pods.Sidecar(c) && !yield(c) {
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
