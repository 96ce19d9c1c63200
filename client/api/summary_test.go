package api

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/internal/pods"
)

func waiting(reason string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}

func ended(code int32, reason string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
}

func running() v1.ContainerState { return v1.ContainerState{Running: &v1.ContainerStateRunning{}} }

// TestStatusIsKubectls has the cases of kubectl's printer.
func TestStatusIsKubectls(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	on, off := true, false
	initialized := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	ready := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue}
	for name, tc := range map[string]struct {
		phase      v1.PodPhase
		reason     string
		deleted    bool
		inits      []v1.ContainerStatus
		sidecars   map[string]bool
		apps       []v1.ContainerStatus
		conditions []v1.PodCondition
		want       string
		ready      int
		restarts   int
	}{
		"nothing known": {want: "Unknown"},
		"phase":         {phase: v1.PodPending, want: "Pending"},
		"reason":        {phase: v1.PodFailed, reason: "Evicted", want: "Evicted"},
		"running": {
			phase: v1.PodRunning,
			apps:  []v1.ContainerStatus{{State: running(), Ready: true}},
			want:  "Running",
			ready: 1,
		},
		"creating": {
			phase: v1.PodPending,
			apps:  []v1.ContainerStatus{{State: waiting("ContainerCreating")}},
			want:  "ContainerCreating",
		},
		"crash loop": {
			phase: v1.PodRunning,
			apps: []v1.ContainerStatus{
				{State: running(), Ready: true}, {State: waiting("CrashLoopBackOff"), RestartCount: 4},
			},
			want:     "CrashLoopBackOff",
			ready:    1,
			restarts: 4,
		},
		"first one counts": {
			phase: v1.PodPending,
			apps:  []v1.ContainerStatus{{State: waiting("ImagePullBackOff")}, {State: waiting("ContainerCreating")}},
			want:  "ImagePullBackOff",
		},
		"completed": {
			phase: v1.PodSucceeded,
			apps:  []v1.ContainerStatus{{State: ended(0, "Completed")}},
			want:  "Completed",
		},
		"error": {
			phase: v1.PodFailed,
			apps:  []v1.ContainerStatus{{State: ended(1, "Error")}},
			want:  "Error",
		},
		"exit code": {
			phase: v1.PodFailed,
			apps:  []v1.ContainerStatus{{State: ended(7, "")}},
			want:  "ExitCode:7",
		},
		"signal": {
			phase: v1.PodFailed,
			apps: []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				Signal: 9, ExitCode: 137,
			}}}},
			want: "Signal:9",
		},
		"failure wins": {
			phase: v1.PodFailed,
			apps:  []v1.ContainerStatus{{State: ended(0, "Completed")}, {State: ended(1, "Error")}},
			want:  "Error",
		},
		"half done, ready": {
			phase:      v1.PodRunning,
			conditions: []v1.PodCondition{ready},
			apps:       []v1.ContainerStatus{{State: ended(0, "Completed")}, {State: running(), Ready: true}},
			want:       "Running",
			ready:      1,
		},
		"half done, unready": {
			phase: v1.PodRunning,
			apps:  []v1.ContainerStatus{{State: ended(0, "Completed")}, {State: running(), Ready: true}},
			want:  "NotReady",
			ready: 1,
		},
		"leaving": {
			phase:   v1.PodRunning,
			deleted: true,
			apps:    []v1.ContainerStatus{{State: running(), Ready: true}},
			want:    "Terminating",
			ready:   1,
		},
		"left": {
			phase:   v1.PodSucceeded,
			deleted: true,
			apps:    []v1.ContainerStatus{{State: ended(0, "Completed")}},
			want:    "Completed",
		},
		"left, failed": {
			phase:   v1.PodFailed,
			deleted: true,
			apps:    []v1.ContainerStatus{{State: ended(1, "Error")}},
			want:    "Error",
		},
		"leaving, ended": {
			phase:   v1.PodRunning,
			deleted: true,
			apps:    []v1.ContainerStatus{{State: ended(0, "Completed")}},
			want:    "Terminating",
		},
		"ended, stays": {
			phase: v1.PodRunning,
			apps:  []v1.ContainerStatus{{State: ended(0, "Completed")}},
			want:  "Completed",
		},
		"node lost": {
			phase:   v1.PodRunning,
			reason:  "NodeLost",
			deleted: true,
			apps:    []v1.ContainerStatus{{State: running(), Ready: true}},
			want:    "Unknown",
			ready:   1,
		},
		"init": {
			phase: v1.PodPending,
			inits: []v1.ContainerStatus{
				{Name: "a", State: ended(0, "Completed"), RestartCount: 2}, {Name: "b", State: running()},
			},
			apps:     []v1.ContainerStatus{{State: waiting("PodInitializing")}},
			want:     "Init:1/2",
			restarts: 2,
		},
		"init waits": {
			phase: v1.PodPending,
			inits: []v1.ContainerStatus{{Name: "a", State: waiting("ErrImagePull")}},
			want:  "Init:ErrImagePull",
		},
		"init not begun": {
			phase: v1.PodPending,
			inits: []v1.ContainerStatus{{Name: "a", State: waiting("PodInitializing")}},
			want:  "Init:0/1",
		},
		"init failed": {
			phase: v1.PodFailed,
			inits: []v1.ContainerStatus{{Name: "a", State: ended(1, "Error")}},
			want:  "Init:Error",
		},
		"init exit code": {
			phase: v1.PodFailed,
			inits: []v1.ContainerStatus{{Name: "a", State: ended(3, "")}},
			want:  "Init:ExitCode:3",
		},
		"init restarts do not count afterwards": {
			phase:    v1.PodRunning,
			inits:    []v1.ContainerStatus{{Name: "a", State: ended(0, "Completed"), RestartCount: 2}},
			apps:     []v1.ContainerStatus{{State: running(), Ready: true, RestartCount: 1}},
			want:     "Running",
			ready:    1,
			restarts: 1,
		},
		"sidecar": {
			phase:    v1.PodRunning,
			inits:    []v1.ContainerStatus{{Name: "a", State: running(), Started: &on, Ready: true, RestartCount: 3}},
			sidecars: map[string]bool{"a": true},
			apps:     []v1.ContainerStatus{{State: running(), Ready: true}},
			want:     "Running",
			ready:    2,
			restarts: 3,
		},
		"sidecar starting": {
			phase:    v1.PodPending,
			inits:    []v1.ContainerStatus{{Name: "a", State: running(), Started: &off}},
			sidecars: map[string]bool{"a": true},
			apps:     []v1.ContainerStatus{{State: waiting("PodInitializing")}},
			want:     "Init:0/1",
		},
		"initialized pod whose init container is gone": {
			phase:      v1.PodRunning,
			conditions: []v1.PodCondition{initialized},
			inits:      []v1.ContainerStatus{{Name: "a", State: waiting("PodInitializing")}},
			apps:       []v1.ContainerStatus{{State: running(), Ready: true}},
			want:       "Init:0/1",
			ready:      1,
		},
	} {
		pod := &v1.Pod{Status: v1.PodStatus{
			Phase:                 tc.phase,
			Reason:                tc.reason,
			InitContainerStatuses: tc.inits,
			ContainerStatuses:     tc.apps,
			Conditions:            tc.conditions,
		}}
		for _, s := range tc.inits {
			c := v1.Container{Name: s.Name}
			if tc.sidecars[s.Name] {
				c.RestartPolicy = &always
			}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
		pod.Spec.Containers = make([]v1.Container, len(tc.apps))
		if tc.deleted {
			pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		got := Summarize(pod)
		if got.Status != tc.want || got.Ready != tc.ready || got.Restarts != tc.restarts ||
			got.Containers != len(tc.apps)+len(tc.sidecars) {
			t.Errorf("%s: %s %d/%d restarts %d, want %s %d restarts %d", name, got.Status, got.Ready, got.Containers,
				got.Restarts, tc.want, tc.ready, tc.restarts)
		}
	}
}

func TestCreated(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pod := &v1.Pod{}
	if got := Summarize(pod).Created; !got.IsZero() {
		t.Errorf("nothing known: %s", got)
	}
	pod.Status.StartTime = &metav1.Time{Time: at}
	if got := Summarize(pod).Created; !got.Equal(at) {
		t.Errorf("start time: %s", got)
	}
	pod.Annotations = map[string]string{pods.AnnotationSeen: at.Add(-time.Second).Format(time.RFC3339Nano)}
	if got := Summarize(pod).Created; !got.Equal(at.Add(-time.Second)) {
		t.Errorf("seen: %s", got)
	}
	pod.CreationTimestamp = metav1.Time{Time: at.Add(-time.Hour)}
	if got := Summarize(pod).Created; !got.Equal(at.Add(-time.Hour)) {
		t.Errorf("created: %s", got)
	}
}

func TestLastRestart(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	earlier := metav1.NewTime(at.Add(-time.Hour))
	last := func(at metav1.Time) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: at}}
	}
	pod := &v1.Pod{Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
		{State: running(), RestartCount: 1, LastTerminationState: last(earlier)},
		{State: running(), RestartCount: 1, LastTerminationState: last(at)},
	}}}
	if got := Summarize(pod); got.LastRestart == nil || !got.LastRestart.Equal(at.Time) || got.Restarts != 2 {
		t.Errorf("got %v %d", got.LastRestart, got.Restarts)
	}
}
