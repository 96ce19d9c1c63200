package status

import (
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestStoreVersionsAndRules(t *testing.T) {
	s, pod := NewStore(), newPod()
	with := func(phase v1.PodPhase, restarts int32) v1.PodStatus {
		return v1.PodStatus{
			Phase: phase, ContainerStatuses: []v1.ContainerStatus{{Name: "main", RestartCount: restarts}},
		}
	}
	steps := []struct {
		name     string
		set      v1.PodStatus
		version  uint64
		changed  bool
		phase    v1.PodPhase
		restarts int32
	}{
		{"first", with(v1.PodPending, 0), 1, true, v1.PodPending, 0},
		{"same", with(v1.PodPending, 0), 1, false, v1.PodPending, 0},
		{"runs", with(v1.PodRunning, 2), 2, true, v1.PodRunning, 2},
		{"restarts fall", with(v1.PodRunning, 1), 2, false, v1.PodRunning, 2},
		{"final", with(v1.PodFailed, 2), 3, true, v1.PodFailed, 2},
		{"leaves final", with(v1.PodRunning, 2), 3, false, v1.PodFailed, 2},
		{"other final", with(v1.PodSucceeded, 3), 4, true, v1.PodFailed, 3},
	}
	for _, step := range steps {
		e, changed := s.Set(pod, step.set)
		if changed != step.changed || e.Version != step.version || e.Status.Phase != step.phase ||
			e.Status.ContainerStatuses[0].RestartCount != step.restarts {
			t.Errorf("%s: version %d changed %v phase %s restarts %d", step.name, e.Version, changed, e.Status.Phase,
				e.Status.ContainerStatuses[0].RestartCount)
		}
	}
	s.Delete(pod.UID)
	if _, ok := s.Get(pod.UID); ok {
		t.Error("still there after Delete")
	}
	if e, _ := s.Set(pod, with(v1.PodPending, 0)); e.Status.Phase != v1.PodPending || e.Version != 1 {
		t.Errorf("a pod that came back starts at version %d phase %s", e.Version, e.Status.Phase)
	}
}

func TestStoreKeepsItsOwnCopy(t *testing.T) {
	s, pod := NewStore(), newPod()
	status := v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main"}}}
	s.Set(pod, status)
	status.ContainerStatuses[0].Name = "scribble"
	if e, _ := s.Get(pod.UID); e.Status.ContainerStatuses[0].Name != "main" {
		t.Error("shares memory with its writer")
	}
}

func TestSubscription(t *testing.T) {
	s := NewStore()
	sub := s.Subscribe()
	pods := []*v1.Pod{newPod(), newPod(), newPod()}
	var wait sync.WaitGroup
	for i, pod := range pods {
		pod.UID = types.UID(rune('a' + i))
		wait.Go(func() {
			for n := range int32(50) { // nobody reads at this time
				s.Set(pod, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main", RestartCount: n}}})
			}
		})
	}
	wait.Wait()
	<-sub.Changed()
	uids := sub.Take()
	slices.Sort(uids)
	if !slices.Equal(uids, []types.UID{"a", "b", "c"}) {
		t.Errorf("changed: %v", uids)
	}
	if again := sub.Take(); len(again) != 0 {
		t.Errorf("told twice: %v", again)
	}
	s.Delete("b")
	<-sub.Changed()
	if uids := sub.Take(); !slices.Equal(uids, []types.UID{"b"}) {
		t.Errorf("after Delete: %v", uids)
	}
	sub.Close()
	sub.Close()
	s.Set(pods[0], v1.PodStatus{Phase: v1.PodFailed})
	select {
	case <-sub.Changed():
		t.Error("told after Close")
	default:
	}
	if len(s.All()) != 2 {
		t.Errorf("%d pods", len(s.All()))
	}
}
