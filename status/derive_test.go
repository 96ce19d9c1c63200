package status

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// column is the STATUS of one container in short form: state/reason/restarts/last exit code or -.
func column(s v1.ContainerStatus) string {
	state := "none"
	switch {
	case s.State.Waiting != nil:
		state = "waiting/" + s.State.Waiting.Reason
	case s.State.Running != nil:
		state = "running/"
	case s.State.Terminated != nil:
		state = "terminated/" + s.State.Terminated.Reason
	}
	last := "-"
	if s.LastTerminationState.Terminated != nil {
		last = s.LastTerminationState.Terminated.Reason
	}
	return state + "/" + fmt.Sprint(s.RestartCount) + "/" + last
}

func TestContainerStates(t *testing.T) {
	crash := map[string]Reason{"main": {Reason: "CrashLoopBackOff", Message: "back-off 10s"}}
	was := func(s v1.ContainerStatus) *v1.PodStatus {
		s.Name, s.Image = "main", "img"
		return &v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{s}}
	}
	isRunning := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	ended := func(reason string, code int32) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			Reason:      reason,
			ExitCode:    code,
			ContainerID: "containerd://old",
		}}
	}
	tests := []struct {
		name     string
		pod      *v1.Pod
		previous *v1.PodStatus
		seen     []*runtimeapi.ContainerStatus
		in       Input
		want     string
	}{
		{name: "nothing", want: "waiting/ContainerCreating/0/-"},
		{name: "nothing, with init", pod: newPod(inits("i")), want: "waiting/PodInitializing/0/-"},
		{
			name: "step waits",
			in:   Input{Waiting: map[string]Reason{"main": {Reason: "ImagePullBackOff"}}},
			want: "waiting/ImagePullBackOff/0/-",
		},
		{
			name: "step waits, but it leaves",
			in:   Input{Terminating: true, Waiting: map[string]Reason{"main": {Reason: "ImagePullBackOff"}}},
			want: "waiting/ContainerCreating/0/-",
		},
		{name: "created", seen: facts(attemptOf("main", 0, 1)), want: "waiting/ContainerCreating/0/-"},
		{
			name: "created, start failed",
			seen: facts(attemptOf("main", 0, 1)),
			in:   Input{Waiting: map[string]Reason{"main": {Reason: "RunContainerError"}}},
			want: "waiting/RunContainerError/0/-",
		},
		{name: "running", seen: facts(running("main", 0, 1)), want: "running//0/-"},
		{
			name: "running: stale reason is not shown",
			seen: facts(running("main", 0, 1)),
			in:   Input{Waiting: crash},
			want: "running//0/-",
		},
		{name: "ended", seen: facts(exited("main", 0, 1, 1)), want: "terminated/Error/0/-"},
		{
			name: "crash loop",
			seen: facts(exited("main", 0, 1, 1)),
			in:   Input{Waiting: crash},
			want: "waiting/CrashLoopBackOff/0/Error",
		},
		{
			name: "crash loop, leaving",
			seen: facts(exited("main", 0, 1, 1)),
			in:   Input{Waiting: crash, Terminating: true},
			want: "terminated/Error/0/-",
		},
		{
			name: "crash loop, never",
			pod:  newPod(policy(v1.RestartPolicyNever)),
			seen: facts(exited("main", 0, 1, 1)),
			in:   Input{Waiting: crash},
			want: "terminated/Error/0/-",
		},
		{
			name: "crash loop, on failure and exit 0",
			pod:  newPod(policy(v1.RestartPolicyOnFailure)),
			seen: facts(exited("main", 0, 1, 0)),
			in:   Input{Waiting: crash},
			want: "terminated/Completed/0/-",
		},
		{name: "second run", seen: facts(exited("main", 0, 1, 1), running("main", 1, 5)), want: "running//1/Error"},
		{
			name: "second run, newest first",
			seen: facts(running("main", 1, 5), exited("main", 0, 1, 1)),
			want: "running//1/Error",
		},
		{
			name: "same second, by attempt",
			seen: facts(exited("main", 0, 1, 1), running("main", 1, 1)),
			want: "running//1/Error",
		},
		{
			name: "third run knows the second's end",
			seen: facts(exited("main", 0, 1, 0), exited("main", 1, 3, 1), running("main", 2, 5)),
			want: "running//2/Error",
		},
		{
			name: "second run in backoff",
			seen: facts(exited("main", 0, 1, 0), exited("main", 1, 3, 1)),
			in:   Input{Waiting: crash},
			want: "waiting/CrashLoopBackOff/1/Error",
		},
		{
			name: "first end was removed",
			previous: was(v1.ContainerStatus{
				RestartCount: 2,
				ContainerID:  "containerd://old",
				State:        ended("Error", 2),
			}),
			seen: facts(running("main", 3, 9)),
			want: "running//3/Error",
		},
		{
			name: "attempts started anew",
			previous: was(v1.ContainerStatus{
				RestartCount: 4,
				ContainerID:  "containerd://old",
				State:        ended("Error", 2),
			}),
			seen: facts(running("main", 0, 9)),
			want: "running//5/Error",
		},
		{
			name: "last state stays",
			previous: was(v1.ContainerStatus{
				RestartCount:         3,
				ContainerID:          "containerd://main-3",
				State:                isRunning,
				LastTerminationState: ended("OOMKilled", 137),
			}),
			seen: facts(running("main", 3, 9)),
			want: "running//3/OOMKilled",
		},

		{
			name:     "vanished while running",
			previous: was(v1.ContainerStatus{RestartCount: 1, State: isRunning}),
			want:     "waiting/ContainerCreating/2/ContainerStatusUnknown",
		},
		{
			name:     "vanished, leaving",
			previous: was(v1.ContainerStatus{RestartCount: 1, State: isRunning}),
			in:       Input{Terminating: true},
			want:     "waiting/ContainerCreating/1/ContainerStatusUnknown",
		},
		{
			name:     "vanished, terminated",
			previous: was(v1.ContainerStatus{RestartCount: 1, State: isRunning}),
			in:       Input{Terminated: true},
			want:     "terminated/ContainerStatusUnknown/1/ContainerStatusUnknown",
		},
		{
			name:     "vanished after its end",
			previous: was(v1.ContainerStatus{RestartCount: 1, State: ended("Error", 3)}),
			want:     "terminated/Error/1/-",
		},
		{
			name:     "vanished after its end, being restarted",
			previous: was(v1.ContainerStatus{RestartCount: 1, State: ended("Error", 3)}),
			in:       Input{Waiting: crash},
			want:     "waiting/CrashLoopBackOff/1/Error",
		},
		{
			name:     "vanished after its end for good",
			pod:      newPod(policy(v1.RestartPolicyNever)),
			previous: was(v1.ContainerStatus{State: ended("Error", 3)}),
			in:       Input{Waiting: crash},
			want:     "terminated/Error/0/-",
		},
		{
			name:     "runtime lost it",
			previous: was(v1.ContainerStatus{RestartCount: 1, ContainerID: "containerd://main-1", State: isRunning}),
			seen:     facts(lost("main", 1, 1)),
			want:     "terminated/ContainerStatusUnknown/2/-",
		},
		{
			name: "runtime lost it, seen again",
			previous: was(v1.ContainerStatus{
				RestartCount: 2,
				ContainerID:  "containerd://main-1",
				State:        ended(ReasonStatusUnknown, 137),
			}),
			seen: facts(lost("main", 1, 1)),
			want: "terminated/ContainerStatusUnknown/2/-",
		},
		{name: "runtime lost it before it ran", seen: facts(lost("main", 0, 1)), want: "waiting/ContainerCreating/0/-"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := tt.in
			in.Pod, in.Previous, in.Containers, in.Now = tt.pod, tt.previous, tt.seen, at(100)
			if in.Pod == nil {
				in.Pod = newPod()
			}
			got := Derive(in)
			if c := column(got.ContainerStatuses[0]); c != tt.want {
				t.Errorf("first: %s, want %s", c, tt.want)
			}
			in.Previous = &got
			if diff := cmp.Diff(got, Derive(in)); diff != "" {
				t.Errorf("not idempotent:\n%s", diff)
			}
		})
	}
}

func TestInitContainerStates(t *testing.T) {
	tests := []struct {
		name  string
		pod   *v1.Pod
		seen  []*runtimeapi.ContainerStatus
		in    Input
		want  string
		ready bool
	}{
		{name: "runs", pod: newPod(inits("i")), seen: facts(running("i", 0, 1)), want: "running//0/-"},
		{
			name:  "done",
			pod:   newPod(inits("i")),
			seen:  facts(exited("i", 0, 1, 0)),
			want:  "terminated/Completed/0/-",
			ready: true,
		},
		{
			name:  "done, stale reason",
			pod:   newPod(inits("i")),
			seen:  facts(exited("i", 0, 1, 0)),
			in:    Input{Waiting: map[string]Reason{"i": {Reason: "X"}}},
			want:  "terminated/Completed/0/-",
			ready: true,
		},
		{
			name: "failed",
			pod:  newPod(inits("i")),
			seen: facts(exited("i", 0, 1, 1)),
			in:   Input{Waiting: map[string]Reason{"i": {Reason: "CrashLoopBackOff"}}},
			want: "waiting/CrashLoopBackOff/0/Error",
		},
		{
			name:  "removed after it was done",
			pod:   newPod(inits("i")),
			seen:  facts(running("main", 0, 2)),
			want:  "terminated/Completed/0/-",
			ready: true,
		},
		{
			name: "sidecar was removed",
			pod:  newPod(sidecar("i")),
			seen: facts(running("main", 0, 2)),
			want: "waiting/PodInitializing/0/-",
		},
		{
			name:  "sidecar runs",
			pod:   newPod(sidecar("i")),
			seen:  facts(running("i", 0, 2)),
			want:  "running//0/-",
			ready: true,
		},
		{
			name: "sidecar failed",
			pod:  newPod(sidecar("i")),
			seen: facts(exited("i", 0, 2, 1)),
			in:   Input{Waiting: map[string]Reason{"i": {Reason: "CrashLoopBackOff"}}},
			want: "waiting/CrashLoopBackOff/0/Error",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := tt.in
			in.Pod, in.Containers, in.Now, in.Sandbox = tt.pod, tt.seen, at(100), sandbox(0)
			got := Derive(in).InitContainerStatuses[0]
			if c := column(got); c != tt.want || got.Ready != tt.ready {
				t.Errorf("%s ready=%v, want %s ready=%v", c, got.Ready, tt.want, tt.ready)
			}
		})
	}
}

func TestOrder(t *testing.T) {
	pod := newPod(inits("z", "a"), regular("y", "b"))
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{
		{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "x"}},
		{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "c"}},
	}
	got := Derive(Input{Pod: pod, Now: at(1)})
	var names []string
	for _, list := range [][]v1.ContainerStatus{
		got.InitContainerStatuses, got.ContainerStatuses, got.EphemeralContainerStatuses,
	} {
		for _, c := range list {
			names = append(names, c.Name)
		}
	}
	if diff := cmp.Diff([]string{"z", "a", "b", "y", "c", "x"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestStartedAndReady(t *testing.T) {
	probe := &v1.Probe{}
	yes, no := ptr(true), ptr(false)
	was := func(id string, started, ready bool) *v1.PodStatus {
		return &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "main", ContainerID: "containerd://" + id, Started: &started, Ready: ready,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		}}}
	}
	tests := []struct {
		name           string
		c              v1.Container
		seen           *runtimeapi.ContainerStatus
		result         Probe
		previous       *v1.PodStatus
		started, ready bool
	}{
		{name: "no probes", seen: running("main", 0, 1), started: true, ready: true},
		{name: "not running", seen: exited("main", 0, 1, 0)},
		{name: "startup not answered", c: v1.Container{StartupProbe: probe}, seen: running("main", 0, 1)},
		{
			name:   "startup failed",
			c:      v1.Container{StartupProbe: probe},
			seen:   running("main", 0, 1),
			result: Probe{ContainerID: "main-0", Started: no, Ready: yes},
		},
		{
			name:    "startup ok",
			c:       v1.Container{StartupProbe: probe},
			seen:    running("main", 0, 1),
			result:  Probe{ContainerID: "main-0", Started: yes},
			started: true,
			ready:   true,
		},
		{
			name:    "readiness not answered",
			c:       v1.Container{ReadinessProbe: probe},
			seen:    running("main", 0, 1),
			started: true,
		},
		{
			name:    "readiness ok",
			c:       v1.Container{ReadinessProbe: probe},
			seen:    running("main", 0, 1),
			result:  Probe{ContainerID: "main-0", Ready: yes},
			started: true,
			ready:   true,
		},
		{
			name:    "readiness of another attempt",
			c:       v1.Container{ReadinessProbe: probe},
			seen:    running("main", 1, 1),
			result:  Probe{ContainerID: "main-0", Ready: yes},
			started: true,
		},
		{
			name:    "result of a probe it has not",
			seen:    running("main", 0, 1),
			result:  Probe{ContainerID: "main-0", Ready: no, Started: no},
			started: true,
			ready:   true,
		},
		{
			name:     "agent restarted: as before",
			c:        v1.Container{ReadinessProbe: probe, StartupProbe: probe},
			seen:     running("main", 0, 1),
			previous: was("main-0", true, true),
			started:  true,
			ready:    true,
		},
		{
			name:     "agent restarted: was not ready",
			c:        v1.Container{ReadinessProbe: probe},
			seen:     running("main", 0, 1),
			previous: was("main-0", true, false),
			started:  true,
		},
		{
			name:     "agent restarted: fails now",
			c:        v1.Container{ReadinessProbe: probe},
			seen:     running("main", 0, 1),
			previous: was("main-0", true, true),
			result:   Probe{ContainerID: "main-0", Ready: no},
			started:  true,
		},
		{
			name:     "container restarted: anew",
			c:        v1.Container{ReadinessProbe: probe, StartupProbe: probe},
			seen:     running("main", 1, 1),
			previous: was("main-0", true, true),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.c
			c.Name = "main"
			got := Derive(Input{
				Pod: newPod(container(c)), Previous: tt.previous, Containers: facts(tt.seen),
				Probes: map[string]Probe{"main": tt.result}, Now: at(100),
			}).ContainerStatuses[0]
			if *got.Started != tt.started || got.Ready != tt.ready {
				t.Errorf("started %v ready %v, want %v %v", *got.Started, got.Ready, tt.started, tt.ready)
			}
		})
	}
}

// A container whose postStart hook runs has not started, whatever its probes report. The hook of an
// earlier attempt does not matter.
func TestHookedContainerIsNotReady(t *testing.T) {
	c := running("main", 0, 1)
	for id, ready := range map[string]bool{c.Id: false, "another": true} {
		got := Derive(Input{
			Pod:        newPod(container(v1.Container{Name: "main"})),
			Containers: facts(c),
			Hooked:     map[string]bool{id: true},
			Now:        at(100),
		}).ContainerStatuses[0]
		if *got.Started != ready || got.Ready != ready {
			t.Errorf("hook of %s: started %v ready %v, want %v", id, *got.Started, got.Ready, ready)
		}
	}
}

// One full status, so that every field is checked once.
func TestWholeStatus(t *testing.T) {
	pod := newPod(static, container(v1.Container{
		Name: "main", Image: "img",
		Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")},
			Limits:   v1.ResourceList{"cpu": resource.MustParse("200m"), "memory": resource.MustParse("128Mi")},
		},
		VolumeMounts: []v1.VolumeMount{
			{Name: "a", MountPath: "/a"},
			{Name: "b", MountPath: "/b", ReadOnly: true},
			{Name: "c", MountPath: "/c", ReadOnly: true, RecursiveReadOnly: ptr(v1.RecursiveReadOnlyIfPossible)},
		},
	}))
	c := running("main", 1, 7)
	c.User = &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{
		Uid:                5,
		Gid:                6,
		SupplementalGroups: []int64{7},
	}}
	c.Resources = &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{
		CpuShares:          102,
		CpuPeriod:          100000,
		CpuQuota:           20000,
		MemoryLimitInBytes: 128 << 20,
	}}
	box := sandbox(1)
	box.Network.AdditionalIps = []*runtimeapi.PodIP{{Ip: "fd00::5"}}
	first := exited("main", 0, 2, 3)
	first.Message = "runtime's"
	got := Derive(Input{
		Pod: pod, Sandbox: box, Containers: facts(c, first), HostIPs: []string{"192.0.2.1", "2001:db8::1"},
		TerminationMessages: map[string]string{"main-0": "own"}, Runtime: Runtime{RecursiveReadOnly: true},
		Previous: &v1.PodStatus{Phase: v1.PodPending, StartTime: ptr(at(0)), Conditions: []v1.PodCondition{
			{Type: v1.PodInitialized, Status: v1.ConditionTrue, LastTransitionTime: at(3)},
			{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: at(3)},
		}},
		Now: metav1.NewTime(at(9).Add(5e8)),
	})
	resources := pod.Spec.Containers[0].Resources
	cond := func(t v1.PodConditionType, since int) v1.PodCondition {
		return v1.PodCondition{
			Type:               t,
			Status:             v1.ConditionTrue,
			ObservedGeneration: 1,
			LastTransitionTime: local(at(since)),
		}
	}
	want := v1.PodStatus{
		ObservedGeneration: 1,
		Phase:              v1.PodRunning,
		QOSClass:           v1.PodQOSBurstable,
		HostIP:             "192.0.2.1",
		HostIPs:            []v1.HostIP{{IP: "192.0.2.1"}, {IP: "2001:db8::1"}},
		PodIP:              "10.1.0.5",
		PodIPs:             []v1.PodIP{{IP: "10.1.0.5"}, {IP: "fd00::5"}},
		StartTime:          ptr(local(at(0))),
		Conditions: []v1.PodCondition{
			cond(v1.PodReadyToStartContainers, 9), cond(v1.PodInitialized, 3), cond(v1.PodReady, 9),
			cond(v1.ContainersReady, 9), cond(v1.PodScheduled, 9),
		},
		InitContainerStatuses:      []v1.ContainerStatus{},
		EphemeralContainerStatuses: []v1.ContainerStatus{},
		ContainerStatuses: []v1.ContainerStatus{{
			Name:         "main",
			Ready:        true,
			Started:      ptr(true),
			RestartCount: 1,
			Image:        "img",
			ImageID:      "img@sha256:1",
			ContainerID:  "containerd://main-1",
			State:        v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: local(at(7))}},
			LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				ExitCode:    3,
				Reason:      "Error",
				Message:     "runtime's: own",
				StartedAt:   local(at(2)),
				FinishedAt:  local(at(3)),
				ContainerID: "containerd://main-0",
			}},
			AllocatedResources: resources.Requests,
			Resources:          &resources,
			VolumeMounts: []v1.VolumeMountStatus{
				{Name: "a", MountPath: "/a"},
				{Name: "b", MountPath: "/b", ReadOnly: true, RecursiveReadOnly: ptr(v1.RecursiveReadOnlyDisabled)},
				{Name: "c", MountPath: "/c", ReadOnly: true, RecursiveReadOnly: ptr(v1.RecursiveReadOnlyEnabled)},
			},
			User: &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: 5, GID: 6, SupplementalGroups: []int64{7}}},
		}},
		AllocatedResources: resources.Requests,
		Resources:          &resources,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func local(t metav1.Time) metav1.Time { return t.Rfc3339Copy() }

func TestConditions(t *testing.T) {
	// line is "type=status reason message" for each condition that is not simply true, in order.
	line := func(s v1.PodStatus) string {
		var out []string
		for _, c := range s.Conditions {
			if c.Status == v1.ConditionTrue && c.Reason == "" {
				out = append(out, string(c.Type))
				continue
			}
			out = append(out, strings.TrimSpace(string(c.Type)+"="+string(c.Status)+" "+c.Reason+" "+c.Message))
		}
		return strings.Join(out, "; ")
	}
	noNetwork := sandbox(0)
	noNetwork.Network.Ip = ""
	hostNetwork := newPod(func(p *v1.Pod) { p.Spec.HostNetwork = true })
	gates := newPod(func(p *v1.Pod) {
		p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb"}}
	})
	gateFalse := gates.DeepCopy()
	gateFalse.Status.Conditions = []v1.PodCondition{{Type: "lb", Status: v1.ConditionFalse}}
	gateTrue := gates.DeepCopy()
	gateTrue.Status.Conditions = []v1.PodCondition{{Type: "lb", Status: v1.ConditionTrue}}
	const notReady = "ContainersNotReady containers with unready status: [main]"
	tests := []struct {
		name string
		in   Input
		want string
	}{
		{
			"nothing yet",
			Input{Pod: newPod()},
			"PodReadyToStartContainers=False; Initialized; Ready=False " + notReady + "; ContainersReady=False " +
				notReady + "; PodScheduled",
		},
		{
			"no sandbox, and why",
			Input{Pod: newPod(), Problem: Reason{"CreatePodSandboxError", "no CNI"}},
			"PodReadyToStartContainers=False CreatePodSandboxError no CNI; Initialized; Ready=False " + notReady +
				"; ContainersReady=False " + notReady + "; PodScheduled",
		},
		{
			"ready",
			Input{
				Pod:        newPod(),
				Sandbox:    sandbox(0),
				Containers: facts(running("main", 0, 1)),
				Problem:    Reason{"X", "stale"},
			},
			"PodReadyToStartContainers; Initialized; Ready; ContainersReady; PodScheduled",
		},
		{
			"no address",
			Input{Pod: newPod(), Sandbox: noNetwork, Containers: facts(running("main", 0, 1))},
			"PodReadyToStartContainers=False; Initialized; Ready; ContainersReady; PodScheduled",
		},
		{
			"network mode changed",
			Input{Pod: hostNetwork, Sandbox: sandbox(0), Containers: facts(running("main", 0, 1))},
			"PodReadyToStartContainers=False; Initialized; Ready; ContainersReady; PodScheduled",
		},
		{
			"init runs",
			Input{
				Pod:        newPod(inits("i", "j")),
				Sandbox:    sandbox(0),
				Containers: facts(exited("i", 0, 1, 0), running("j", 0, 2)),
			},
			"PodReadyToStartContainers; Initialized=False ContainersNotInitialized containers with incomplete " +
				"status: " +
				"[j]; Ready=False " + notReady + "; ContainersReady=False " + notReady + "; PodScheduled",
		},
		{
			"sidecar restarts",
			Input{
				Pod:        newPod(sidecar("s")),
				Sandbox:    sandbox(0),
				Containers: facts(exited("s", 0, 1, 1), running("main", 0, 2)),
			},
			"PodReadyToStartContainers; Initialized; Ready=False ContainersNotReady containers with unready status: " +
				"[s]; ContainersReady=False ContainersNotReady containers with unready status: [s]; PodScheduled",
		},
		{
			"succeeded",
			Input{
				Pod:        newPod(policy(v1.RestartPolicyNever)),
				Sandbox:    stopped(sandbox(0)),
				Containers: facts(exited("main", 0, 1, 0)),
			},
			"PodReadyToStartContainers=False; Initialized=True PodCompleted; Ready=False PodCompleted; " +
				"ContainersReady=False PodCompleted; PodScheduled",
		},
		{
			"failed",
			Input{
				Pod:        newPod(policy(v1.RestartPolicyNever)),
				Sandbox:    sandbox(0),
				Containers: facts(exited("main", 0, 1, 1)),
			},
			"PodReadyToStartContainers; Initialized; Ready=False PodFailed; ContainersReady=False PodFailed; " +
				"PodScheduled",
		},
		{
			"gate missing",
			Input{Pod: gates, Sandbox: sandbox(0), Containers: facts(running("main", 0, 1))},
			`PodReadyToStartContainers; Initialized; Ready=False ReadinessGatesNotReady corresponding condition of ` +
				`pod readiness gate "lb" does not exist.; ContainersReady; PodScheduled`,
		},
		{
			"gate false",
			Input{Pod: gateFalse, Sandbox: sandbox(0), Containers: facts(running("main", 0, 1))},
			`lb=False; PodReadyToStartContainers; Initialized; Ready=False ReadinessGatesNotReady the status of pod ` +
				`readiness gate "lb" is not "True", but False; ContainersReady; PodScheduled`,
		},
		{
			"gate true",
			Input{Pod: gateTrue, Sandbox: sandbox(0), Containers: facts(running("main", 0, 1))},
			`lb; PodReadyToStartContainers; Initialized; Ready; ContainersReady; PodScheduled`,
		},
		{
			"evicted",
			Input{
				Pod:        newPod(),
				Sandbox:    stopped(sandbox(0)),
				Containers: facts(exited("main", 0, 1, 137)),
				Failed:     &Failure{"Evicted", "low memory", "TerminationByKubelet", "low memory", true},
			},
			"DisruptionTarget=True TerminationByKubelet low memory; PodReadyToStartContainers=False; Initialized; " +
				"Ready=False PodFailed; ContainersReady=False PodFailed; PodScheduled",
		},
		{
			"being evicted",
			Input{
				Pod:        newPod(),
				Sandbox:    sandbox(0),
				Containers: facts(running("main", 0, 1)),
				Failed:     &Failure{"Evicted", "low memory", "TerminationByKubelet", "low memory", true},
			},
			"PodReadyToStartContainers; Initialized; Ready=False PodFailed; ContainersReady=False PodFailed; " +
				"PodScheduled",
		},
		{"rejected", Input{Pod: gateTrue, Rejected: &Failure{Reason: "OutOfcpu"}}, "lb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := tt.in
			in.Now = at(100)
			got := Derive(in)
			if l := line(got); l != tt.want {
				t.Errorf("got  %s\nwant %s", l, tt.want)
			}
			in.Previous, in.Now = &got, at(200)
			if diff := cmp.Diff(got, Derive(in)); diff != "" {
				t.Errorf("time alone changed the status:\n%s", diff)
			}
		})
	}
}

func TestTransitionTimeChangesWithStatusOnly(t *testing.T) {
	in := Input{Pod: newPod(), Sandbox: sandbox(0), Containers: facts(running("main", 0, 1)), Now: at(10)}
	first := Derive(in)
	in.Previous, in.Now, in.Containers = &first, at(20), facts(exited("main", 0, 1, 1))
	second := Derive(in)
	for typ, want := range map[v1.PodConditionType]int{
		v1.PodReady:        20,
		v1.ContainersReady: 20,
		v1.PodInitialized:  10,
		v1.PodScheduled:    10,
	} {
		if got := condition(second.Conditions, typ).LastTransitionTime; !got.Equal(ptr(at(want))) {
			t.Errorf("%s changed at %v, want %v", typ, got, at(want))
		}
	}
	if !second.StartTime.Equal(ptr(at(10))) {
		t.Errorf("start time moved to %v", second.StartTime)
	}
}

func TestReasonStaysWithItsPhase(t *testing.T) {
	in := Input{
		Pod:        newPod(),
		Containers: facts(exited("main", 0, 1, 137)),
		Failed:     &Failure{Reason: "DeadlineExceeded", Message: "m"},
		Now:        at(1),
	}
	first := Derive(in)
	in.Failed, in.Previous, in.Terminated = nil, &first, true
	if got := Derive(in); got.Phase != v1.PodFailed || got.Reason != "DeadlineExceeded" || got.Message != "m" {
		t.Errorf("%s %s %s", got.Phase, got.Reason, got.Message)
	}
	rejected := Derive(Input{Pod: newPod(), Rejected: &Failure{Reason: "OutOfpods", Message: "full"}, Now: at(1)})
	if rejected.Message != "Pod was rejected: full" || rejected.StartTime == nil ||
		rejected.QOSClass != v1.PodQOSBestEffort {
		t.Errorf("%+v", rejected)
	}
}

func TestIPs(t *testing.T) {
	hostNetwork := newPod(func(p *v1.Pod) { p.Spec.HostNetwork = true })
	dual := sandbox(0)
	dual.Network.AdditionalIps = []*runtimeapi.PodIP{{Ip: "10.1.0.6"}, {Ip: "fd00::5"}}
	had := &v1.PodStatus{PodIPs: []v1.PodIP{{IP: "10.9.9.9"}}, HostIPs: []v1.HostIP{{IP: "192.0.2.7"}}}
	tests := []struct {
		name string
		in   Input
		pod  string
		host string
	}{
		{"none", Input{Pod: newPod()}, "", ""},
		{"sandbox", Input{Pod: newPod(), Sandbox: sandbox(0), HostIPs: []string{"192.0.2.1"}}, "10.1.0.5", "192.0.2.1"},
		{
			"dual, node is v6",
			Input{Pod: newPod(), Sandbox: dual, HostIPs: []string{"2001:db8::1"}},
			"fd00::5 10.1.0.5", "2001:db8::1",
		},
		{
			"dual, node is v4",
			Input{Pod: newPod(), Sandbox: dual, HostIPs: []string{"192.0.2.1"}},
			"10.1.0.5 fd00::5",
			"192.0.2.1",
		},
		{"sandbox stopped", Input{Pod: newPod(), Sandbox: stopped(sandbox(0)), Previous: had}, "10.9.9.9", "192.0.2.7"},
		{"sandbox gone", Input{Pod: newPod(), Previous: had}, "10.9.9.9", "192.0.2.7"},
		{
			"caller knows",
			Input{Pod: newPod(), Sandbox: sandbox(0), PodIPs: []string{"bad", "10.7.7.7"}},
			"10.7.7.7",
			"",
		},
		{"host network", Input{Pod: hostNetwork, HostIPs: []string{"192.0.2.1"}}, "192.0.2.1", "192.0.2.1"},
		{
			"host network, set once",
			Input{Pod: hostNetwork, HostIPs: []string{"192.0.2.1"}, Previous: had},
			"10.9.9.9", "192.0.2.1",
		},
		{
			"host network, second family",
			Input{Pod: hostNetwork, HostIPs: []string{"192.0.2.1", "2001:db8::1"}, Previous: had},
			"10.9.9.9 2001:db8::1", "192.0.2.1 2001:db8::1",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.Now = at(1)
			got := Derive(tt.in)
			var pod, host []string
			for _, ip := range got.PodIPs {
				pod = append(pod, ip.IP)
			}
			for _, ip := range got.HostIPs {
				host = append(host, ip.IP)
			}
			if strings.Join(pod, " ") != tt.pod || strings.Join(host, " ") != tt.host {
				t.Errorf("pod %v host %v, want %q %q", pod, host, tt.pod, tt.host)
			}
			if len(pod) > 0 && got.PodIP != pod[0] || len(host) > 0 && got.HostIP != host[0] {
				t.Errorf("podIP %q hostIP %q are not the first", got.PodIP, got.HostIP)
			}
		})
	}
}

// A pod without init containers whose containers never ran has failed nevertheless. A pod that
// never completed its init containers did not run.
func TestTerminatedBeforeRegularContainers(t *testing.T) {
	got := Derive(Input{
		Pod:        newPod(inits("i", "j", "k")),
		Containers: facts(exited("i", 0, 1, 0), running("j", 0, 2)),
		Terminated: true,
		Now:        at(5),
	})
	if got.ContainerStatuses[0].State.Waiting == nil {
		t.Errorf("main: %s", column(got.ContainerStatuses[0]))
	}
	var states []string
	for _, c := range got.InitContainerStatuses {
		states = append(states, column(c))
	}
	want := []string{"terminated/Completed/0/-", "terminated/ContainerStatusUnknown/0/-", "waiting/PodInitializing/0/-"}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Error(diff)
	}
	if got.Phase != v1.PodFailed {
		t.Errorf("phase %s", got.Phase)
	}
}

func TestDeriveDoesNotTouchItsInput(t *testing.T) {
	pod := newPod(inits("i"), sidecar("s"), regular("a"))
	pod.Status.Conditions = []v1.PodCondition{{Type: "x", Status: v1.ConditionTrue}}
	in := Input{
		Pod:        pod,
		Sandbox:    sandbox(0),
		Containers: facts(exited("i", 0, 1, 0), running("s", 0, 1), running("a", 1, 3), exited("a", 0, 1, 1)),
		Now:        at(9),
	}
	previous := Derive(in)
	in.Previous, in.Terminated = &previous, true
	podCopy, previousCopy := pod.DeepCopy(), previous.DeepCopy()
	got := Derive(in)
	for i := range got.ContainerStatuses {
		got.ContainerStatuses[i].LastTerminationState.Terminated.Reason = "scribble"
	}
	if diff := cmp.Diff(podCopy, pod) + cmp.Diff(previousCopy, &previous); diff != "" {
		t.Error(diff)
	}
}
