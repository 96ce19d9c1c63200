package main

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/internal/pods"
)

// TestAwaited checks in which states of a pod the wait for it ends.
func TestAwaited(t *testing.T) {
	pod := func(phase v1.PodPhase, ready v1.ConditionStatus, main, side int32) *v1.Pod {
		return &v1.Pod{Status: v1.PodStatus{
			Phase:                 phase,
			Conditions:            []v1.PodCondition{{Type: v1.PodReady, Status: ready}},
			ContainerStatuses:     []v1.ContainerStatus{{Name: "main", RestartCount: main}},
			InitContainerStatuses: []v1.ContainerStatus{{Name: "side", RestartCount: side}},
		}}
	}
	stopped := pod(v1.PodFailed, v1.ConditionTrue, 0, 0)
	stopped.Status.Reason = pods.ReasonStopped
	leaving := pod(v1.PodRunning, v1.ConditionTrue, 9, 9)
	leaving.DeletionTimestamp = &metav1.Time{}
	both := restarting(nil, pod(v1.PodRunning, v1.ConditionTrue, 3, 1), []string{"main (at once)", "side"})
	for name, c := range map[string]struct {
		wait  *awaited
		pod   *v1.Pod
		word  string
		fails bool
	}{
		"ready":              {&awaited{}, pod(v1.PodRunning, v1.ConditionTrue, 0, 0), "is ready", false},
		"not ready":          {&awaited{}, pod(v1.PodRunning, v1.ConditionFalse, 0, 0), "", false},
		"stopped still":      {&awaited{}, stopped, "", false},
		"being removed":      {&awaited{}, leaving, "", false},
		"ended well":         {&awaited{}, pod(v1.PodSucceeded, v1.ConditionFalse, 0, 0), "has succeeded", false},
		"failed":             {&awaited{}, pod(v1.PodFailed, v1.ConditionFalse, 0, 0), "", true},
		"not restarted yet":  {both, pod(v1.PodRunning, v1.ConditionTrue, 3, 1), "", false},
		"restarted one":      {both, pod(v1.PodRunning, v1.ConditionTrue, 4, 1), "", false},
		"restarted both":     {both, pod(v1.PodRunning, v1.ConditionTrue, 4, 2), "is ready", false},
		"restarted, unready": {both, pod(v1.PodRunning, v1.ConditionFalse, 4, 2), "", false},
	} {
		if word, err := c.wait.state(c.pod); word != c.word || (err != nil) != c.fails {
			t.Errorf("%s: %q %v", name, word, err)
		}
	}
}
