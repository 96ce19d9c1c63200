package server

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/internal/pods"
)

// A pod that waits for its back-off says how its container ended, and not only how long it waits.
func TestExplainNamesTheLastExit(t *testing.T) {
	pod := &v1.Pod{Status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
		Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "back-off 40s",
		}},
		LastTerminationState: v1.ContainerState{
			Terminated: &v1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"},
		},
	}}}}
	line := lineOf("Running", done("admit"), done("sandbox"), wait("images", "back-off 40s"))
	const want = "container c: CrashLoopBackOff: back-off 40s; it last ended with exit code 3 (Error)"
	if got := Explain(pod, line); got.WaitsFor != want || len(got.Crashed) != 1 || got.Step != "images" {
		t.Errorf("%+v", got)
	}
	line.Phase = "Terminating"
	line.Entries = []timeline.Entry{wait("remove images", "containers to stop: c")}
	if got := Explain(pod, line); got.WaitsFor != "containers to stop: c" {
		t.Errorf("while it ends: %+v", got)
	}
}

// The status names the step that fails before a container is made. It does not name a pod that an
// operator has stopped, and says of a silent runtime nothing about each pod.
func TestStatusNamesFailingSteps(t *testing.T) {
	pod := func(uid, reason string) *v1.Pod {
		p := webPod()
		p.UID, p.Name, p.Status = types.UID(uid), uid, v1.PodStatus{Phase: v1.PodPending, Reason: reason}
		return p
	}
	long := strings.Repeat("é", maxStuck)
	s := &Server{backend: &fixture{
		pods: []*v1.Pod{
			pod("volume", ""), pod("long", ""), pod("silent", ""), pod("fine", ""), pod("stopped", pods.ReasonStopped),
		},
		timelines: map[types.UID]timeline.Timeline{
			"volume":  lineOf("Running", done("admit"), failed("sandbox", `configmap "x" not found`)),
			"long":    lineOf("Running", failed("admit", long)),
			"silent":  lineOf("Running", done("admit"), failed(timeline.StepObserve, "no answer")),
			"fine":    lineOf("Running", done("admit"), wait("images", "pulling")),
			"stopped": lineOf("Running", failed("admit", "what it was before")),
		},
	}}
	got := strings.Join(s.nodeStatus(t.Context()).Attention, "\n")
	for _, want := range []string{
		`pod default/volume: step sandbox fails: configmap "x" not found: see "berth why default/volume"`,
		"pod default/long: step admit fails: " + strings.Repeat("é", maxStuck/2) + "…: see",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\n") + 1; n != 2 {
		t.Errorf("%d things need a person:\n%s", n, got)
	}
}
