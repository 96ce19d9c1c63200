package status

import v1 "k8s.io/api/core/v1"

// End is the end of one attempt of a container.
type End struct {
	// Kind is container, init_container or ephemeral_container, as in the kubelet's metrics.
	Kind string
	// Container is the container's name.
	Container string
	*v1.ContainerStateTerminated
}

// Ends returns the ends of a pod's containers between two of its statuses, each attempt once. It
// returns none if there is no status before: an earlier run of the agent may have seen these ends.
func Ends(before, after *v1.PodStatus) []End {
	if before == nil {
		return nil
	}
	known := map[string]bool{"": true} // an attempt without an id never was
	for _, end := range endsOf(before) {
		known[end.ContainerID] = true
	}
	var out []End
	for _, end := range endsOf(after) {
		if !known[end.ContainerID] {
			known[end.ContainerID] = true
			out = append(out, end)
		}
	}
	return out
}

// endsOf returns the ends that a status has, of each container the last two.
func endsOf(st *v1.PodStatus) []End {
	var out []End
	for _, of := range []struct {
		kind string
		list []v1.ContainerStatus
	}{
		{"init_container", st.InitContainerStatuses},
		{"container", st.ContainerStatuses},
		{"ephemeral_container", st.EphemeralContainerStatuses},
	} {
		for i := range of.list {
			c := &of.list[i]
			for _, end := range []*v1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
				if end != nil {
					out = append(out, End{of.kind, c.Name, end})
				}
			}
		}
	}
	return out
}
