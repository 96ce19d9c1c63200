package status

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Each end of an attempt is returned once, whatever statuses are between.
func TestEnds(t *testing.T) {
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
	withInit := status(nil, killed)
	withInit.InitContainerStatuses = []v1.ContainerStatus{{
		Name: "i", State: v1.ContainerState{Terminated: ended("x://3", 0, "Completed")},
	}}
	for name, c := range map[string]struct {
		before, after *v1.PodStatus
		want          string
	}{
		"an earlier run may have seen it": {nil, status(crashed, nil), "[]"},
		"new":                             {status(nil, nil), status(crashed, nil), "[container c 139 Error]"},
		"the same":                        {status(crashed, nil), status(crashed, nil), "[]"},
		"it runs again":                   {status(crashed, nil), status(nil, crashed), "[]"},
		"and ended again, between two":    {status(nil, crashed), status(nil, killed), "[container c 137 OOMKilled]"},
		"two at once": {
			status(nil, nil), status(killed, crashed), "[container c 137 OOMKilled container c 139 Error]",
		},
		"an attempt that is not known at all": {
			status(nil, killed), status(ended("", 137, "ContainerStatusUnknown"), killed), "[]",
		},
		"init containers": {status(nil, killed), withInit, "[init_container i 0 Completed]"},
	} {
		var got []string
		for _, end := range Ends(c.before, c.after) {
			got = append(got, fmt.Sprint(end.Kind, " ", end.Container, " ", end.ExitCode, " ", end.Reason))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %s, want %s", name, fmt.Sprint(got), c.want)
		}
	}
}
