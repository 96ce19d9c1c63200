package server

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/internal/pods"
)

func exited(name string, code int32, reason, message string) v1.ContainerStatus {
	return v1.ContainerStatus{
		Name: name,
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: code,
			Reason:   reason,
			Message:  message,
		}},
	}
}

func waiting(name, reason, message string) v1.ContainerStatus {
	return v1.ContainerStatus{
		Name: name, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}},
	}
}

func TestEnded(t *testing.T) {
	for want, status := range map[string]v1.PodStatus{
		"": {
			Phase: v1.PodSucceeded, ContainerStatuses: []v1.ContainerStatus{exited("c", 0, "Completed", "")},
		},
		"DeadlineExceeded: too long": {Phase: v1.PodFailed, Reason: "DeadlineExceeded", Message: "too long"},
		"NodePorts: Pod was rejected: no free ports; it is not tried again before \"berth start ns/web\", or a change of " +
			"its manifest": {
			Phase: v1.PodFailed, Reason: "NodePorts", Message: "Pod was rejected: no free ports",
		},
		"Evicted: low on memory; container c ended with exit code 137 (OOMKilled, SIGKILL)": {
			Phase:             v1.PodFailed,
			Reason:            "Evicted",
			Message:           "low on memory",
			ContainerStatuses: []v1.ContainerStatus{exited("c", 137, "OOMKilled", "")},
		},
		"DeadlineExceeded: late; container c did not start, or was lost: the runtime does not have it": {
			Phase: v1.PodFailed, Reason: "DeadlineExceeded", Message: "late",
			ContainerStatuses: []v1.ContainerStatus{exited("c", 137, "ContainerStatusUnknown", "could not be located")},
		},
		"container prepare ended with exit code 3 (Error): no disk; container b ended with exit code 1": {
			Phase: v1.PodFailed,
			InitContainerStatuses: []v1.ContainerStatus{
				exited("first", 0, "Completed", ""), exited("prepare", 3, "Error", "no disk\n"),
			},
			ContainerStatuses: []v1.ContainerStatus{waiting("a", "PodInitializing", ""), exited("b", 1, "", "")},
		},
	} {
		got := Explain(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Status: status,
		}, timeline.Timeline{Phase: "Terminated"})
		if got.Ended != want || got.WaitsFor != "" {
			t.Errorf("ended %q, waits for %q, want %q", got.Ended, got.WaitsFor, want)
		}
		if crashed := strings.Count(want, "container "); len(got.Crashed) != crashed {
			t.Errorf("%q: the ends of the logs of %q are shown, want %d", want, got.Crashed, crashed)
		}
	}
}

// An evicted static pod says that it comes back.
func TestEndedEvictedStatic(t *testing.T) {
	pod := &v1.Pod{Status: v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "low on memory"}}
	pod.Annotations = map[string]string{pods.AnnotationSource: pods.SourceFile}
	const want = "Evicted: low on memory; it runs again when the node has had enough for " +
		"evictionPressureTransitionPeriod"
	if got := Explain(pod, timeline.Timeline{Phase: "Terminated"}).Ended; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// What the agent knows beyond upstream's words is told, too: who has the port, or the cpu.
func TestEndedWithDetail(t *testing.T) {
	pod := &v1.Pod{Status: v1.PodStatus{
		Phase:   v1.PodFailed,
		Reason:  "NodePorts",
		Message: "Pod was rejected: no free ports",
	}}
	refused := timeline.Entry{
		Step:    "admit",
		Outcome: timeline.Failed,
		Message: "NodePorts: no free ports: TCP port 80 is taken by pod default/web",
	}
	got := Explain(pod,
		timeline.Timeline{
			Phase: "Terminated",
			Entries: []timeline.Entry{
				{Step: "admit", Outcome: timeline.Done, Message: "NodePorts: no free ports: x"}, refused,
			},
		}).Ended
	if want := "NodePorts: Pod was rejected: no free ports (TCP port 80 is taken by pod default/web); it is not " +
		"tried again"; !strings.HasPrefix(got, want) {
		t.Errorf("ended %q", got)
	}
}

// before adds the end of the attempt before.
func before(now, last v1.ContainerStatus) v1.ContainerStatus {
	now.LastTerminationState = last.State
	return now
}

func TestEveryUnreadyContainerIsNamed(t *testing.T) {
	spec := v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b", ReadinessProbe: &v1.Probe{}}}}
	probed := v1.ContainerStatus{Name: "b", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	for want, status := range map[string]v1.PodStatus{
		"container a: CrashLoopBackOff: back-off 10s; container b to pass its readiness probe": {
			ContainerStatuses: []v1.ContainerStatus{waiting("a", "CrashLoopBackOff", "back-off 10s"), probed},
		},
		"container b: InvalidImageName: no; container a: CrashLoopBackOff: back-off 10s; it last ended with exit code 139 " +
			"(Error, SIGSEGV): at line 3": {ContainerStatuses: []v1.ContainerStatus{
			before(waiting("a", "CrashLoopBackOff", "back-off 10s"), exited("a", 139, "Error", "at line 3\n")),
			waiting("b", "InvalidImageName", "no"),
		}},
		"container i: CrashLoopBackOff: back-off 10s": {
			InitContainerStatuses: []v1.ContainerStatus{waiting("i", "CrashLoopBackOff", "back-off 10s")},
			ContainerStatuses: []v1.ContainerStatus{
				waiting("a", "PodInitializing", ""), waiting("b", "PodInitializing", ""),
			},
		},
		"container a, which ended with exit code 2 (Error): oh": {ContainerStatuses: []v1.ContainerStatus{exited("a", 2,
			"Error", "oh")}},
	} {
		if got := unready(&v1.Pod{Spec: spec, Status: status}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
