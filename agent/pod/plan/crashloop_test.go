package plan

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestBackoffDoublesUpToTheLimit(t *testing.T) {
	l := DefaultBackoffLimits()
	var b Backoff
	finished := now
	for i, seconds := range []int{0, 10, 20, 40, 80, 160, 300, 300} {
		want := time.Duration(seconds) * time.Second
		due := b.Until(End{Finished: finished}, l)
		if want == 0 && !due.IsZero() || want > 0 && due.Sub(finished) != want {
			t.Fatalf("restart %d is due %s after the end, want %s", i, due.Sub(finished), want)
		}
		b = b.Next(End{Finished: finished}, "", l)
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
		if got := b.Until(End{Finished: finished}, l).IsZero(); got != fresh {
			t.Errorf("after %s: starts at once %v", ran, got)
		}
		next := b.Next(End{Finished: finished}, "", l)
		if fresh && (next.Delay != 10*time.Second || next.Set != finished) {
			t.Errorf("after %s: next %+v", ran, next)
		}
		if !fresh && (next.Delay != 300*time.Second || next.Set != finished.Add(160*time.Second)) {
			t.Errorf("after %s: next %+v", ran, next)
		}
	}
	// The time that it waited does not count as run time.
	b = Backoff{Delay: 300 * time.Second, Set: now}
	b = b.Next(End{Finished: now.Add(time.Second)}, "", l)
	if finished := now.Add(302*time.Second + 599*time.Second); b.Until(End{Finished: finished}, l).IsZero() {
		t.Error("the wait before the restart counts as life")
	}
}

func TestBackoffLimits(t *testing.T) {
	l := BackoffLimits{Initial: 10 * time.Second, Max: time.Second}
	b := Backoff{}.Next(End{Finished: now}, "", l)
	if b.Delay != time.Second {
		t.Errorf("first delay %s", b.Delay)
	}
	if b = b.Next(End{Finished: now.Add(time.Second)}, "", l); b.Delay != time.Second {
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

// A container that was killed to start again waits only if it ran for less than its delay, counted
// from the end before. Each kill raises the delay nevertheless.
func TestBackoffOfKilledContainers(t *testing.T) {
	l := DefaultBackoffLimits()
	var b Backoff
	finished := now
	// A liveness probe kills it after 15 s of life each time. These are the times of a kubelet.
	for i, seconds := range []int{0, 0, 0, 20, 40} {
		end := End{Finished: finished, Killed: true}
		want := time.Duration(seconds) * time.Second
		due := b.Until(end, l)
		if want == 0 && !due.IsZero() || want > 0 && due.Sub(finished) != want {
			t.Fatalf("restart %d is due %s after the kill, want %s", i, due.Sub(finished), want)
		}
		b = b.Next(end, "", l)
		finished = finished.Add(want + 15*time.Second)
	}
}

// Whatever way a quantity is written, a copy of the container and one from a checkpoint have the
// same key.
func TestBackoffKeyIsStable(t *testing.T) {
	for _, text := range []string{"0.5", "1", "250m", "1000m", "1024Mi", "1.5G", "1.5Gi", "0.5Gi", "1e3"} {
		c := &v1.Container{Image: "i"}
		c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(text)}
		data, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var stored v1.Container
		if err := json.Unmarshal(data, &stored); err != nil {
			t.Fatal(err)
		}
		if key := BackoffKey(c); key != BackoffKey(c.DeepCopy()) || key != BackoffKey(&stored) {
			t.Errorf("%s: keys %s, %s and %s", text, key, BackoffKey(c.DeepCopy()), BackoffKey(&stored))
		}
	}
}

// A back-off is that of an image with its resources: another one starts at once, and afresh.
func TestBackoffOfAnotherImage(t *testing.T) {
	l := DefaultBackoffLimits()
	c := &v1.Container{Name: "a", Image: "one"}
	changed, resized := c.DeepCopy(), c.DeepCopy()
	changed.Image = "two"
	resized.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	b := Backoff{Delay: 80 * time.Second, Set: now, Of: BackoffKey(c)}
	end := End{Finished: now.Add(time.Minute)}
	if b.For(BackoffKey(c.DeepCopy())).Until(end, l).IsZero() {
		t.Error("the same container has no back-off")
	}
	for _, other := range []*v1.Container{changed, resized} {
		if due := b.For(BackoffKey(other)).Until(end, l); !due.IsZero() {
			t.Errorf("%s, %v: due %s", other.Image, other.Resources, due)
		}
		if next := b.Next(end, BackoffKey(other), l); next.Delay != 10*time.Second {
			t.Errorf("%s, %v: next %+v", other.Image, other.Resources, next)
		}
	}
	old := Backoff{Delay: 80 * time.Second, Set: now} // of an agent that did not note what it is of
	if old.For(BackoffKey(c)).Until(end, l).IsZero() {
		t.Error("a back-off of an earlier version is forgotten")
	}
}
