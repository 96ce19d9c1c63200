package server

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/agent/timeline"
)

func done(step string) timeline.Entry { return timeline.Entry{Step: step, Outcome: timeline.Done} }
func wait(step, message string) timeline.Entry {
	return timeline.Entry{Step: step, Outcome: timeline.Wait, Message: message}
}

func failed(step, message string) timeline.Entry {
	return timeline.Entry{Step: step, Outcome: timeline.Failed, Message: message}
}

func TestExplain(t *testing.T) {
	ready := v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
		{Name: "c", Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
	}}
	unready := *ready.DeepCopy()
	unready.ContainerStatuses[0].Ready = false
	crashing := v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
		{Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}}},
	}}
	deleted := metav1.Now()
	for name, tc := range map[string]struct {
		status            v1.PodStatus
		probe             bool
		deleted           *metav1.Time
		story             Story
		want, step, error string
		overcome          bool
	}{
		"all is well": {status: ready, story: story("Running", done("admit"), done("sandbox"), done("images"))},
		"a step waits": {
			status: v1.PodStatus{Phase: v1.PodPending},
			story:  story("Running", done("admit"), done("sandbox"), wait("images", "c: pulling")), want: "c: pulling", step: "images",
		},
		"a step fails": {
			status: v1.PodStatus{Phase: v1.PodPending},
			story:  story("Running", done("admit"), failed("sandbox", "no network")), want: "sandbox to succeed: no network", step: "sandbox", error: "no network",
		},
		"an earlier pass came further": {
			status: v1.PodStatus{Phase: v1.PodPending},
			story:  story("Running", wait("images", "c: pulling"), done("admit"), failed("sandbox", "gone")), want: "sandbox to succeed: gone", step: "sandbox", error: "gone",
		},
		"an earlier wait that this pass did not come to": {
			status: ready, story: story("Running", wait("images", "c: pulling"), done("admit"), done("sandbox")),
		},
		"overcome": {
			status: ready, story: story("Running", failed("sandbox", "no network"), done("admit"), done("sandbox"), done("images")),
			error: "no network", overcome: true,
		},
		"the runtime is away": {
			status: ready, story: story("Running", done("admit"), done("sandbox"), failed("observe", "connection refused")),
			want: "observe to succeed: connection refused", step: "observe", error: "connection refused",
		},
		"not ready":        {status: unready, probe: true, story: story("Running", done("admit")), want: "container c to pass its readiness probe"},
		"crash loop":       {status: crashing, story: story("Running", done("admit")), want: "container c: CrashLoopBackOff: back-off 10s"},
		"never had a pass": {status: v1.PodStatus{Phase: v1.PodPending}, story: Story{Phase: "Running"}, want: "its first pass"},
		"successor":        {status: v1.PodStatus{Phase: v1.PodPending}, story: Story{Phase: "Running", Successor: true}, want: "its predecessor of the same name to be gone"},
		"stopping": {
			status: ready, deleted: &deleted, story: story("Terminating", done("admit"), wait("sandbox", "old"), done("remove images"), wait("remove sandbox", "c to end")),
			want: "c to end", step: "remove sandbox",
		},
		"ended": {status: v1.PodStatus{Phase: v1.PodSucceeded}, story: story("Terminated", done("remove images"))},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tc.deleted}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}, Status: tc.status}
		if tc.probe {
			pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
		}
		got := Explain(pod, tc.story)
		if got.WaitsFor != tc.want || got.Step != tc.step {
			t.Errorf("%s: waits for %q at %q, want %q at %q", name, got.WaitsFor, got.Step, tc.want, tc.step)
		}
		switch {
		case got.LastError == nil && tc.error != "":
			t.Errorf("%s: no last error", name)
		case got.LastError != nil && (got.LastError.Message != tc.error || got.LastError.Overcome != tc.overcome):
			t.Errorf("%s: last error %+v, want %q", name, got.LastError, tc.error)
		}
	}
}

func TestNextRetry(t *testing.T) {
	at := time.Now()
	got := Explain(&v1.Pod{}, Story{Phase: "Running", RetryAt: at})
	if got.NextRetry == nil || !got.NextRetry.Equal(at) {
		t.Errorf("next retry: %v", got.NextRetry)
	}
}

func TestLastWarning(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	about := func(uid, kind, reason string) v1.Event {
		e := v1.Event{Type: kind, Reason: reason}
		e.InvolvedObject.UID = metav1.ObjectMeta{UID: "u"}.UID
		if uid != "u" {
			e.InvolvedObject.UID = "other"
		}
		return e
	}
	got := lastWarning([]v1.Event{
		about("u", v1.EventTypeWarning, "Failed"), about("u", v1.EventTypeWarning, "MissingClusterDNS"),
		about("u", v1.EventTypeNormal, "Pulled"), about("other", v1.EventTypeWarning, "BackOff"),
	}, pod)
	if got == nil || got.Step != "Failed" {
		t.Errorf("got %+v", got)
	}
}
