package plan

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestBackoffDoublesUpToTheLimit(t *testing.T) {
	l := DefaultBackoffLimits()
	var b Backoff
	finished := now
	for i, seconds := range []int{0, 10, 20, 40, 80, 160, 300, 300} {
		want := time.Duration(seconds) * time.Second
		due := b.Until(finished, l)
		if want == 0 && !due.IsZero() || want > 0 && due.Sub(finished) != want {
			t.Fatalf("restart %d is due %s after the end, want %s", i, due.Sub(finished), want)
		}
		b = b.Next(finished, l)
		finished = finished.Add(want + time.Second) // it runs for a second
	}
}

func TestBackoffReset(t *testing.T) {
	l := DefaultBackoffLimits()
	b := Backoff{Delay: 160 * time.Second, Set: now}
	for ran, fresh := range map[time.Duration]bool{
		599 * time.Second: false,
		600 * time.Second: false,
		601 * time.Second: true,
	} {
		finished := now.Add(ran)
		if got := b.Until(finished, l).IsZero(); got != fresh {
			t.Errorf("after %s: starts at once %v", ran, got)
		}
		next := b.Next(finished, l)
		if fresh && (next.Delay != 10*time.Second || next.Set != finished) {
			t.Errorf("after %s: next %+v", ran, next)
		}
		if !fresh && (next.Delay != 300*time.Second || next.Set != finished.Add(160*time.Second)) {
			t.Errorf("after %s: next %+v", ran, next)
		}
	}
	// The time that it waited does not count as run time.
	b = Backoff{Delay: 300 * time.Second, Set: now}
	b = b.Next(now.Add(time.Second), l)
	if finished := now.Add(302*time.Second + 599*time.Second); b.Until(finished, l).IsZero() {
		t.Error("the wait before the restart counts as life")
	}
}

func TestBackoffLimits(t *testing.T) {
	l := BackoffLimits{Initial: 10 * time.Second, Max: time.Second}
	b := Backoff{}.Next(now, l)
	if b.Delay != time.Second {
		t.Errorf("first delay %s", b.Delay)
	}
	if b = b.Next(now.Add(time.Second), l); b.Delay != time.Second {
		t.Errorf("second delay %s", b.Delay)
	}
}

func TestRestartFloorsAndEnded(t *testing.T) {
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3}}
	runs := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	waits := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	s := &v1.PodStatus{
		InitContainerStatuses: []v1.ContainerStatus{{Name: "i", State: ended, ContainerID: "x"}},
		ContainerStatuses: []v1.ContainerStatus{
			{Name: "runs", State: runs, RestartCount: 2},
			{Name: "ended", State: ended},
			{Name: "waits", State: waits, LastTerminationState: ended, RestartCount: 4},
			{Name: "created", State: waits, ContainerID: "x"},
			{Name: "created again", State: waits, ContainerID: "x", RestartCount: 1},
			{Name: "new", State: waits},
		},
		EphemeralContainerStatuses: []v1.ContainerStatus{{Name: "e", State: ended}},
	}
	if got, want := fmt.Sprint(RestartFloors(s)), "map[created again:1 e:1 ended:1 i:1 runs:3 waits:5]"; got != want {
		t.Errorf("floors %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(Ended(s)), "map[ended:3]"; got != want {
		t.Errorf("ended %s, want %s", got, want)
	}
	if len(RestartFloors(nil)) != 0 || len(Ended(nil)) != 0 {
		t.Error("something of nothing")
	}
}
