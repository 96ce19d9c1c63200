package status

import v1 "k8s.io/api/core/v1"

// Successor returns the first status of a pod whose UID was another pod's before; last is the last
// status of that pod. All containers wait. Only the restart counts and the ends of the containers
// are kept, and nothing of ephemeral containers.
func Successor(last *v1.PodStatus) *v1.PodStatus {
	return &v1.PodStatus{
		Phase:                 v1.PodPending,
		InitContainerStatuses: waiting(last.InitContainerStatuses),
		ContainerStatuses:     waiting(last.ContainerStatuses),
	}
}

func waiting(last []v1.ContainerStatus) []v1.ContainerStatus {
	var out []v1.ContainerStatus
	for i := range last {
		c := &last[i]
		s := v1.ContainerStatus{
			Name:                 c.Name,
			Image:                c.Image,
			RestartCount:         c.RestartCount,
			LastTerminationState: *c.LastTerminationState.DeepCopy(),
			State: v1.ContainerState{
				Waiting: &v1.ContainerStateWaiting{Reason: ReasonContainerCreating},
			},
		}
		if c.State.Terminated != nil {
			s.LastTerminationState.Terminated = c.State.Terminated.DeepCopy()
		}
		out = append(out, s)
	}
	return out
}
