package metrics

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// ContainersEnded counts the ends of a pod's containers between two of its statuses, each attempt
// once. It counts nothing if there is no status before: an earlier run of the agent may have
// counted these ends.
func (s *Set) ContainersEnded(before, after *v1.PodStatus) {
	if before == nil {
		return
	}
	counted := map[string]bool{"": true}
	for _, list := range [][]v1.ContainerStatus{
		before.InitContainerStatuses, before.ContainerStatuses, before.EphemeralContainerStatuses,
	} {
		for i := range list {
			for _, end := range ends(&list[i]) {
				counted[end.ContainerID] = true
			}
		}
	}
	for kind, list := range map[string][]v1.ContainerStatus{
		"init_container":      after.InitContainerStatuses,
		"container":           after.ContainerStatuses,
		"ephemeral_container": after.EphemeralContainerStatuses,
	} {
		for i := range list {
			for _, end := range ends(&list[i]) {
				if !counted[end.ContainerID] {
					counted[end.ContainerID] = true
					s.pods.ended.WithLabelValues(kind, strconv.Itoa(int(end.ExitCode)), end.Reason).Inc()
				}
			}
		}
	}
}

// ends returns the ends that a container's status has.
func ends(s *v1.ContainerStatus) []*v1.ContainerStateTerminated {
	var out []*v1.ContainerStateTerminated
	for _, end := range []*v1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if end != nil {
			out = append(out, end)
		}
	}
	return out
}
