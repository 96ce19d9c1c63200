package status

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestPhase(t *testing.T) {
	const (
		always    = v1.RestartPolicyAlways
		onFailure = v1.RestartPolicyOnFailure
		never     = v1.RestartPolicyNever
	)
	onlyExit3 := []v1.ContainerRestartRule{{
		Action: v1.ContainerRestartRuleActionRestart,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
			Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{3},
		},
	}}
	tests := []struct {
		name string
		pod  *v1.Pod
		seen []*runtimeapi.ContainerStatus
		in   Input
		want v1.PodPhase
	}{
		{name: "nothing yet", pod: newPod(), want: v1.PodPending},
		{name: "created only", pod: newPod(), seen: facts(attemptOf("main", 0, 1)), want: v1.PodPending},
		{name: "one of two runs", pod: newPod(regular("a", "b")), seen: facts(running("a", 0, 1)), want: v1.PodPending},
		{
			name: "both run",
			pod:  newPod(regular("a", "b")),
			seen: facts(running("a", 0, 1), running("b", 0, 1)),
			want: v1.PodRunning,
		},
		{
			name: "one runs, one ended",
			pod:  newPod(policy(never), regular("a", "b")),
			seen: facts(running("a", 0, 1), exited("b", 0, 1, 1)),
			want: v1.PodRunning,
		},
		{name: "always: ended with 0", pod: newPod(), seen: facts(exited("main", 0, 1, 0)), want: v1.PodRunning},
		{name: "always: ended with 1", pod: newPod(), seen: facts(exited("main", 0, 1, 1)), want: v1.PodRunning},
		{
			name: "always: in backoff",
			pod:  newPod(),
			seen: facts(exited("main", 0, 1, 1)),
			in:   Input{Waiting: map[string]Reason{"main": {Reason: "CrashLoopBackOff"}}},
			want: v1.PodRunning,
		},
		{
			name: "on failure: ended with 0",
			pod:  newPod(policy(onFailure)),
			seen: facts(exited("main", 0, 1, 0)),
			want: v1.PodSucceeded,
		},
		{
			name: "on failure: ended with 1",
			pod:  newPod(policy(onFailure)),
			seen: facts(exited("main", 0, 1, 1)),
			want: v1.PodRunning,
		},
		{
			name: "never: ended with 0",
			pod:  newPod(policy(never)),
			seen: facts(exited("main", 0, 1, 0)),
			want: v1.PodSucceeded,
		},
		{
			name: "never: ended with 1",
			pod:  newPod(policy(never)),
			seen: facts(exited("main", 0, 1, 1)),
			want: v1.PodFailed,
		},
		{
			name: "never: 0 and 1",
			pod:  newPod(policy(never), regular("a", "b")),
			seen: facts(exited("a", 0, 1, 0), exited("b", 0, 1, 1)),
			want: v1.PodFailed,
		},
		{
			name: "never: 0 and missing",
			pod:  newPod(policy(never), regular("a", "b")),
			seen: facts(exited("a", 0, 1, 0)),
			want: v1.PodPending,
		},

		{
			name: "always: terminated, from the API",
			pod:  newPod(),
			seen: facts(exited("main", 0, 1, 0)),
			in:   Input{Terminated: true},
			want: v1.PodSucceeded,
		},
		{
			name: "always: terminated with 1, from the API",
			pod:  newPod(),
			seen: facts(exited("main", 0, 1, 1)),
			in:   Input{Terminated: true},
			want: v1.PodFailed,
		},
		{
			name: "always: terminated, static",
			pod:  newPod(static),
			seen: facts(exited("main", 0, 1, 0)),
			in:   Input{Terminated: true},
			want: v1.PodRunning,
		},
		{name: "terminated before it started", pod: newPod(), in: Input{Terminated: true}, want: v1.PodFailed},

		{name: "init runs", pod: newPod(inits("i")), seen: facts(running("i", 0, 1)), want: v1.PodPending},
		{name: "init done", pod: newPod(inits("i")), seen: facts(exited("i", 0, 1, 0)), want: v1.PodPending},
		{
			name: "init failed, never",
			pod:  newPod(inits("i"), policy(never)),
			seen: facts(exited("i", 0, 1, 1)),
			want: v1.PodFailed,
		},
		{name: "init failed, always", pod: newPod(inits("i")), seen: facts(exited("i", 0, 1, 1)), want: v1.PodPending},
		{
			name: "init failed, on failure",
			pod:  newPod(inits("i"), policy(onFailure)),
			seen: facts(exited("i", 0, 1, 1)),
			want: v1.PodPending,
		},
		{
			name: "init in backoff",
			pod:  newPod(inits("i")),
			seen: facts(exited("i", 0, 1, 1)),
			in:   Input{Waiting: map[string]Reason{"i": {Reason: "CrashLoopBackOff"}}},
			want: v1.PodPending,
		},
		{
			name: "init done, main runs",
			pod:  newPod(inits("i")),
			seen: facts(exited("i", 0, 1, 0), running("main", 0, 2)),
			want: v1.PodRunning,
		},
		{
			name: "init removed, main runs",
			pod:  newPod(inits("i")),
			seen: facts(running("main", 0, 2)),
			want: v1.PodRunning,
		},

		{name: "sidecar not started", pod: newPod(sidecar("s")), seen: facts(running("s", 0, 1)), want: v1.PodPending},
		{
			name: "sidecar and main run",
			pod:  newPod(sidecar("s")),
			seen: facts(running("s", 0, 1), running("main", 0, 2)),
			want: v1.PodRunning,
		},
		{
			name: "sidecar runs on after main",
			pod:  newPod(sidecar("s"), policy(never)),
			seen: facts(running("s", 0, 1), exited("main", 0, 2, 0)),
			want: v1.PodRunning,
		},
		{
			name: "sidecar failed after main",
			pod:  newPod(sidecar("s"), policy(never)),
			seen: facts(exited("s", 0, 1, 137), exited("main", 0, 2, 0)),
			want: v1.PodSucceeded,
		},
		{
			name: "sidecar restarts beside main",
			pod:  newPod(sidecar("s")),
			seen: facts(exited("s", 0, 1, 1), running("main", 0, 2)),
			want: v1.PodRunning,
		},
		{
			name: "sidecar removed, terminated",
			pod:  newPod(sidecar("s"), policy(never)),
			seen: facts(exited("s", 0, 1, 0), exited("main", 0, 2, 0)),
			in:   Input{Terminated: true},
			want: v1.PodSucceeded,
		},

		{
			name: "own policy never beats always",
			pod:  newPod(container(v1.Container{Name: "main", RestartPolicy: ptr(v1.ContainerRestartPolicyNever)})),
			seen: facts(exited("main", 0, 1, 1)),
			want: v1.PodFailed,
		},
		{
			name: "rule restarts",
			pod: newPod(policy(never),
				container(v1.Container{
					Name:               "main",
					RestartPolicy:      ptr(v1.ContainerRestartPolicyNever),
					RestartPolicyRules: onlyExit3,
				})),
			seen: facts(exited("main", 0, 1, 3)),
			want: v1.PodRunning,
		},
		{
			name: "rule does not match",
			pod: newPod(container(v1.Container{
				Name:               "main",
				RestartPolicy:      ptr(v1.ContainerRestartPolicyNever),
				RestartPolicyRules: onlyExit3,
			})),
			seen: facts(exited("main", 0, 1, 4)),
			want: v1.PodFailed,
		},

		{
			name: "final stays though it runs",
			pod:  newPod(),
			seen: facts(running("main", 0, 1)),
			in:   Input{Previous: &v1.PodStatus{Phase: v1.PodFailed}},
			want: v1.PodFailed,
		},
		{
			name: "final stays though it restarts",
			pod:  newPod(policy(onFailure)),
			seen: facts(exited("main", 0, 1, 1)),
			in:   Input{Previous: &v1.PodStatus{Phase: v1.PodSucceeded}},
			want: v1.PodSucceeded,
		},
		{
			name: "final in the API",
			pod:  newPod(func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }),
			seen: facts(exited("main", 0, 1, 0)),
			in:   Input{Previous: &v1.PodStatus{Phase: v1.PodRunning}},
			want: v1.PodFailed,
		},
		{
			name: "must fail, still runs",
			pod:  newPod(),
			seen: facts(running("main", 0, 1)),
			in:   Input{Previous: &v1.PodStatus{Phase: v1.PodRunning}, Failed: &Failure{Reason: "Evicted"}},
			want: v1.PodRunning,
		},
		{
			name: "ended, and has its claims",
			pod:  newPod(policy(v1.RestartPolicyNever)),
			seen: facts(exited("main", 0, 1, 0)),
			in:   Input{Previous: &v1.PodStatus{Phase: v1.PodRunning}, Allocated: Allocated{Claims: true}},
			want: v1.PodRunning,
		},
		{
			name: "must fail, ended, and has its claims",
			pod:  newPod(),
			seen: facts(exited("main", 0, 1, 0)),
			in: Input{
				Previous: &v1.PodStatus{Phase: v1.PodRunning}, Failed: &Failure{Reason: "Evicted"},
				Allocated: Allocated{Claims: true},
			},
			want: v1.PodRunning,
		},
		{
			name: "must fail, ended",
			pod:  newPod(static),
			seen: facts(exited("main", 0, 1, 0)),
			in:   Input{Previous: &v1.PodStatus{Phase: v1.PodRunning}, Failed: &Failure{Reason: "Evicted"}},
			want: v1.PodFailed,
		},
		{
			name: "must leave, ended with 0",
			pod:  newPod(),
			seen: facts(exited("main", 0, 1, 0)),
			in: Input{
				Previous: &v1.PodStatus{Phase: v1.PodRunning}, Failed: &Failure{Reason: "Preempting", Yields: true},
			},
			want: v1.PodSucceeded,
		},
		{
			name: "must leave, ended with 137",
			pod:  newPod(),
			seen: facts(exited("main", 0, 1, 137)),
			in: Input{
				Previous: &v1.PodStatus{Phase: v1.PodRunning}, Failed: &Failure{Reason: "Preempting", Yields: true},
			},
			want: v1.PodFailed,
		},
		{
			name: "must leave, ended with 0, static",
			pod:  newPod(static),
			seen: facts(exited("main", 0, 1, 0)),
			in: Input{
				Previous: &v1.PodStatus{Phase: v1.PodRunning}, Failed: &Failure{Reason: "Preempting", Yields: true},
			},
			want: v1.PodFailed,
		},
		{
			name: "must fail, but had succeeded",
			pod:  newPod(),
			seen: facts(exited("main", 0, 1, 0)),
			in:   Input{Previous: &v1.PodStatus{Phase: v1.PodSucceeded}, Failed: &Failure{Reason: "Evicted"}},
			want: v1.PodSucceeded,
		},
		{name: "rejected", pod: newPod(), in: Input{Rejected: &Failure{Reason: "OutOfcpu"}}, want: v1.PodFailed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := tt.in
			in.Pod, in.Containers, in.Now, in.Sandbox = tt.pod, tt.seen, at(100), sandbox(0)
			if got := Derive(in); got.Phase != tt.want {
				t.Errorf("phase %q, want %q; statuses %+v %+v", got.Phase, tt.want, got.InitContainerStatuses,
					got.ContainerStatuses)
			}
		})
	}
}

// A sidecar that restarts in a new sandbox before any regular container makes the pod pending
// again. Beside regular containers it does not.
func TestPhaseSidecarPendingOnlyBeforeInitialized(t *testing.T) {
	pod := newPod(sidecar("s"))
	pod.Spec.InitContainers[0].StartupProbe = &v1.Probe{}
	in := Input{
		Pod:        pod,
		Sandbox:    sandbox(10),
		Now:        at(100),
		Containers: facts(running("s", 1, 11), exited("main", 0, 2, 1)),
		Earlier:    map[string]bool{"main-0": true},
	}
	if got := Derive(in).Phase; got != v1.PodPending {
		t.Errorf("main is of the old sandbox: phase %q, want Pending", got)
	}
	in.Containers = facts(running("s", 1, 20), running("main", 1, 12))
	if got := Derive(in).Phase; got != v1.PodRunning {
		t.Errorf("main is of this sandbox: phase %q, want Running", got)
	}
}

// The clock was put back while the pod ran: facts of now look older than facts of before.
func TestStatusWhenTheClockWasPutBack(t *testing.T) {
	pod := newPod(sidecar("s"))
	pod.Spec.InitContainers[0].StartupProbe = &v1.Probe{}
	in := Input{
		Pod:        pod,
		Sandbox:    sandbox(3600),
		Now:        at(100),
		Containers: facts(running("s", 1, 90), exited("main", 1, 3700, 1), running("main", 2, 95)),
	}
	got := Derive(in)
	if main := got.ContainerStatuses[0]; main.State.Running == nil || main.RestartCount != 2 ||
		!strings.HasSuffix(main.ContainerID, "main-2") {
		t.Errorf("the container that runs is %+v", main)
	}
	if got.Phase != v1.PodRunning {
		t.Errorf("main was started in this sandbox: phase %q, want Running", got.Phase)
	}
	in.Containers, in.Earlier = facts(running("s", 1, 90), exited("main", 1, 3700, 1)), map[string]bool{"main-1": true}
	in.Sandbox = sandbox(80)
	if got := Derive(in).Phase; got != v1.PodPending {
		t.Errorf("main is of the old sandbox: phase %q, want Pending", got)
	}
}
