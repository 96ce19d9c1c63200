package plan

import v1 "k8s.io/api/core/v1"

// RestartFloors returns the least next attempt of each container by its last known status, for
// containers whose records the runtime no longer has. A container that never ran keeps its number.
func RestartFloors(status *v1.PodStatus) map[string]uint32 {
	floors := map[string]uint32{}
	if status == nil {
		return floors
	}
	for _, list := range [][]v1.ContainerStatus{
		status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses,
	} {
		for i := range list {
			s := &list[i]
			floor := uint32(max(s.RestartCount, 0))
			if s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil {
				floor++
			}
			if floor > 0 {
				floors[s.Name] = floor
			}
		}
	}
	return floors
}

// Ended returns the exit codes of the app containers that had ended by the last known status, for
// containers whose records the runtime no longer has. A container that ended for good must not run
// again because somebody removed its record.
func Ended(status *v1.PodStatus) map[string]int32 {
	ended := map[string]int32{}
	if status == nil {
		return ended
	}
	for i := range status.ContainerStatuses {
		if s := &status.ContainerStatuses[i]; s.State.Terminated != nil {
			ended[s.Name] = s.State.Terminated.ExitCode
		}
	}
	return ended
}
