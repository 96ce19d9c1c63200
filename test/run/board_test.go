package main

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/images"
)

func TestSamplesAreRead(t *testing.T) {
	root, err := images.Root()
	if err != nil {
		t.Fatal(err)
	}
	names, err := readSamples(filepath.Join(root, samplesDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hello", "clock", "job", "retry"} {
		if !slices.Contains(names, want) {
			t.Errorf("no sample %s in %v", want, names)
		}
	}
}

func TestRowFollowsItsPod(t *testing.T) {
	pod := func(phase corev1.PodPhase, state corev1.ContainerState, ready bool) *corev1.Pod {
		p := &corev1.Pod{}
		p.Name = "x-node"
		p.Spec.Containers = []corev1.Container{{Name: "c"}}
		p.Status.Phase = phase
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: state, Ready: ready, RestartCount: 2}}
		condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
		if ready {
			condition.Status = corev1.ConditionTrue
		}
		p.Status.Conditions = []corev1.PodCondition{condition}
		return p
	}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}

	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		want row
	}{
		{"unknown", nil, row{name: "x", status: "-"}},
		{
			"waiting", pod(corev1.PodPending, waiting, false),
			row{name: "x", ready: "0/1", status: "CrashLoopBackOff", restarts: 2},
		},
		{
			"ready", pod(corev1.PodRunning, running, true),
			row{name: "x", ready: "1/1", status: "Running", restarts: 2, took: time.Second},
		},
		{
			"ended", pod(corev1.PodSucceeded, ended, false),
			row{name: "x", ready: "0/1", status: "Completed", restarts: 2, took: time.Second},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := (row{name: "x"}).next(tc.pod, time.Second); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
	kept := row{name: "x", took: time.Second}
	if got := kept.next(pod(corev1.PodRunning, running, true), time.Minute); got.took != time.Second {
		t.Errorf("the time of the first readiness was replaced by %s", got.took)
	}
}
