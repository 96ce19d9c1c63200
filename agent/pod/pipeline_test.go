package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/agent/pod/checkpoint"
	"github.com/berthd/berth/agent/pod/steps"
	"github.com/berthd/berth/agent/pod/tasks"
	"github.com/berthd/berth/probes"
)

// A pod must not run twice because somebody removed the runtime's records.
func TestDecideRemembersEndsWithoutRecords(t *testing.T) {
	e := &Engine{deps: Deps{Probes: probes.New(probes.Config{}, probes.Deps{})}}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "uid"},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "app"}}},
	}
	ended := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
		Name: "app", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3}},
	}}}
	in := e.planInput(&podSync{Sync: &steps.Sync{Given: steps.Given{
		Pod: pod, Record: &checkpoint.Record{Status: ended}, Tasks: tasks.New(t.Context(), func() {}, nil),
	}}})
	if code, ok := in.Ended["app"]; !ok || code != 3 {
		t.Errorf("Ended = %v, want app with 3", in.Ended)
	}
}
