package agent

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/agent/checkpoint"
	"github.com/berthd/berth/agent/steps"
	"github.com/berthd/berth/agent/tasks"
	"github.com/berthd/berth/probes"
)

func TestHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Agent{}
		time.Sleep(time.Hour) // of waiting for the runtime
		if err := a.Healthy(time.Second); err != nil {
			t.Errorf("before the main loop began: %v", err)
		}
		now := time.Now()
		a.beat.Store(&now)
		if err := a.Healthy(time.Second); err != nil {
			t.Errorf("just after a turn: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := a.Healthy(time.Second); err == nil {
			t.Error("healthy though the main loop has stopped")
		}
	})
}

func TestDismantleWhatWasNeverSetUp(t *testing.T) {
	a := &Agent{deps: Deps{Cgroups: &hostCgroups{}}}
	if err := a.Dismantle(t.Context()); err != nil {
		t.Error(err)
	}
}

// Whoever tidies up the runtime's records must not make a pod run twice.
func TestDecideRemembersEndsWithoutRecords(t *testing.T) {
	a := &Agent{probes: probes.New(probes.Config{}, probes.Deps{})}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "uid"},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "app"}}},
	}
	ended := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
		Name: "app", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3}},
	}}}
	in := a.decide(&steps.Pass{Pod: pod, Record: &checkpoint.Record{Status: ended}, Tasks: tasks.New(t.Context(), func() {})})
	if code, ok := in.Ended["app"]; !ok || code != 3 {
		t.Errorf("Ended = %v, want app with 3", in.Ended)
	}
}
