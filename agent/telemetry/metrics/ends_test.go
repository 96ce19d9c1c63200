package metrics

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestContainersEnded(t *testing.T) {
	s := New("node1", "v1.2.3")
	ended := func(id string, code int32, reason string) *v1.ContainerStateTerminated {
		return &v1.ContainerStateTerminated{ContainerID: id, ExitCode: code, Reason: reason}
	}
	status := func(now, last *v1.ContainerStateTerminated) *v1.PodStatus {
		return &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name:                 "c",
			State:                v1.ContainerState{Terminated: now},
			LastTerminationState: v1.ContainerState{Terminated: last},
		}}}
	}
	crashed, killed := ended("x://1", 139, "Error"), ended("x://2", 137, "OOMKilled")
	s.ContainersEnded(nil, status(crashed, nil)) // an earlier run may have counted it
	s.ContainersEnded(status(nil, nil), status(crashed, nil))
	s.ContainersEnded(status(crashed, nil), status(crashed, nil))
	s.ContainersEnded(status(crashed, nil), status(nil, crashed)) // runs again
	s.ContainersEnded(status(nil, crashed), status(nil, killed))  // and again, between two statuses
	s.ContainersEnded(status(nil, killed), status(ended("", 137, "ContainerStatusUnknown"), killed))
	after := status(nil, killed)
	after.InitContainerStatuses = []v1.ContainerStatus{{
		Name: "i", State: v1.ContainerState{Terminated: ended("x://3", 0, "Completed")},
	}}
	s.ContainersEnded(status(nil, killed), after)
	var got []string
	for _, line := range gather(t, s) {
		if strings.HasPrefix(line, "kubelet_terminated_containers_total") {
			got = append(got, strings.TrimPrefix(line, "kubelet_terminated_containers_total"))
		}
	}
	slices.Sort(got)
	want := []string{
		"{container_type=container,exit_code=137,reason=OOMKilled} 1",
		"{container_type=container,exit_code=139,reason=Error} 1",
		"{container_type=init_container,exit_code=0,reason=Completed} 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
