package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/desired"
	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/client/api"
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
	line.Ends = "DeadlineExceeded: too long"
	if got := Explain(pod, line); got.WaitsFor != "containers to stop: c; the pod ends: DeadlineExceeded: too long" {
		t.Errorf("while it ends for a reason: %+v", got)
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
	long := strings.Repeat("é", maxCause) + "no such host"
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
		"pod default/long: step admit fails: " + strings.Repeat("é", (maxCause/2-len("step admit fails: "))/2) + " … é",
		"éno such host: see",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\n") + 1; n != 2 {
		t.Errorf("%d things need a person:\n%s", n, got)
	}
}

// Each pod that needs a person has its cause in the status, and the first line of why has it, too.
func TestCauses(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	notReady := []v1.PodCondition{
		{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: ago(2 * notReadyAfter)},
	}
	waits := func(reason, message string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ExitCode: 137, Reason: "OOMKilled", StartedAt: ago(time.Minute),
	}}
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: ago(time.Hour)}}
	event := func(message string, last metav1.Time) v1.Event {
		return v1.Event{
			InvolvedObject: v1.ObjectReference{UID: "u", FieldPath: "spec.containers{c}"}, Reason: unhealthy,
			Message: message, LastTimestamp: last, Type: v1.EventTypeWarning, Count: 3,
		}
	}
	for _, tc := range []struct {
		name       string
		status     v1.PodStatus
		events     []v1.Event
		cause, why string
	}{
		{
			"crash",
			v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
				{Name: "c", State: waits("CrashLoopBackOff", "back-off 40s"), LastTerminationState: ended},
			}},
			nil,
			"container c: CrashLoopBackOff: it last ended with exit code 137 (OOMKilled, SIGKILL)",
			"container c: CrashLoopBackOff: back-off 40s; it last ended with exit code 137 (OOMKilled, SIGKILL)",
		},
		{
			"start fails again as before",
			v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
				{Name: "c", State: waits("RunContainerError", "no such file"), LastTerminationState: v1.ContainerState{
					Terminated: &v1.ContainerStateTerminated{
						ExitCode: 128, Reason: "StartError", StartedAt: ago(time.Minute), Message: "no such file",
					},
				}},
			}},
			nil,
			"container c: RunContainerError: no such file",
			"container c: RunContainerError: no such file; it last ended with exit code 128 (StartError)",
		},
		{
			"liveness",
			v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
				{Name: "c", State: waits("CrashLoopBackOff", ""), LastTerminationState: ended},
			}},
			[]v1.Event{event("of before", ago(time.Hour)), event("Liveness probe failed: refused", ago(time.Second))},
			"; Liveness probe failed: refused", "; Liveness probe failed: refused",
		},
		{
			"image", v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{
				{Name: "c", State: waits("ImagePullBackOff", "no such image"), LastTerminationState: ended},
			}}, nil, "container c: ImagePullBackOff: no such image", "container c: ImagePullBackOff: no such image",
		},
		{
			"readiness",
			v1.PodStatus{Phase: v1.PodRunning, Conditions: notReady, ContainerStatuses: []v1.ContainerStatus{
				{Name: "c", State: running},
			}},
			[]v1.Event{event("Readiness probe failed: 500", ago(time.Second))},
			"waits for container c to pass its readiness probe; Readiness probe failed: 500",
			"container c to pass its readiness probe; Readiness probe failed: 500",
		},
		{
			"restarted since",
			v1.PodStatus{
				Phase: v1.PodRunning, Conditions: notReady,
				ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: running}},
			},
			[]v1.Event{event("Readiness probe failed: 500", ago(2*time.Hour))},
			"waits for container c to pass its readiness probe", "container c to pass its readiness probe",
		},
		{
			"new",
			v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{
				{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: ago(0)},
			}, ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: running}}},
			nil,
			"", "container c to pass its readiness probe",
		},
		{
			"refused",
			v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: no cpu"},
			nil,
			"Failed: OutOfcpu: Pod was rejected: no cpu; it is not tried again", "",
		},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "c", ReadinessProbe: &v1.Probe{}}},
		}, Status: tc.status}
		s := &Server{backend: &fixture{pods: []*v1.Pod{pod}, kept: tc.events}}
		if got := s.cause(pod, now); tc.cause == "" && got != "" || !strings.Contains(got, tc.cause) {
			t.Errorf("%s: cause %q, want %q", tc.name, got, tc.cause)
		}
		var why api.Why
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.SetPathValue("namespace", "ns")
		r.SetPathValue("pod", "p")
		s.why(w, r)
		if err := json.Unmarshal(w.Body.Bytes(), &why); err != nil || !strings.Contains(why.WaitsFor, tc.why) {
			t.Errorf("%s: why %q %v, want %q", tc.name, why.WaitsFor, err, tc.why)
		}
		if strings.Count(why.WaitsFor, "no such") > 1 {
			t.Errorf("%s: why says a thing twice: %q", tc.name, why.WaitsFor)
		}
	}
}

// Why has what somebody last changed about a pod that is in trouble.
func TestLastChange(t *testing.T) {
	pod := webPod()
	event := func(uid types.UID, reason, message string) v1.Event {
		return v1.Event{InvolvedObject: v1.ObjectReference{UID: uid}, Reason: reason, Message: message}
	}
	events := []v1.Event{
		event(pod.UID, desired.ManifestChanged, "first"), event(pod.UID, desired.ObjectChanged, "second"),
		event(pod.UID, "Started", "third"), event("other", desired.ManifestChanged, "fourth"),
	}
	if got := lastChange(events, pod); got == nil || got.Message != "second" {
		t.Errorf("%+v", got)
	}
	if got := lastChange(events[2:], pod); got != nil {
		t.Errorf("nobody changed it: %+v", got)
	}
}
