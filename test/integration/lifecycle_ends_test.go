//go:build integration

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// deadlineEnds checks that a pod that is active for longer than its deadline fails, and that its
// containers get their grace.
func deadlineEnds(t *testing.T, e *env.Env, a *env.Agent) {
	log := traced(t, a, "bounded", "terminationGracePeriodSeconds: 10\nactiveDeadlineSeconds: 20\ncontainers:\n",
		noting("main", untilSignal))
	waitTrace(t, log, "main")
	p := waitPod(t, a, "bounded", "over", phase(corev1.PodFailed))
	if p.Status.Reason != "DeadlineExceeded" ||
		p.Status.Message != "Pod was active on the node longer than the specified deadline" {
		t.Errorf("the pod failed with %s: %s", p.Status.Reason, p.Status.Message)
	}
	waitTrace(t, log, "main-term")
	waitEvent(t, a, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
	removed(t, e, a, "bounded")
}

// probeKillsForGood checks that a container that was killed because of its liveness probe starts
// again under OnFailure, although its exit code was 0.
func probeKillsForGood(t *testing.T, e *env.Env, a *env.Agent) {
	log := traced(t, a, "alive-again", "terminationGracePeriodSeconds: 10\nrestartPolicy: OnFailure\ncontainers:\n",
		noting("main", untilSignal,
			"livenessProbe: {exec: {command: [sh, -c, '! grep -qx main /trace/log || grep -q main-term "+
				"/trace/log']}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 2}"))
	p := waitPod(t, a, "alive-again", "restarted and running", func(p *corev1.Pod) error {
		if statusOf(p, "main").State.Running == nil {
			return fmt.Errorf("main does not run")
		}
		return restarted("main", 1)(p)
	})
	if end := statusOf(p, "main").LastTerminationState.Terminated; end == nil || end.ExitCode != 0 {
		t.Errorf("main ended with %+v", end)
	}
	inOrder(t, log, "main", "main-term", "main")
	removed(t, e, a, "alive-again")
}

// probeHasItsGrace checks that the probe's own terminationGracePeriodSeconds counts, and not the
// pod's, which is longer than the test.
func probeHasItsGrace(t *testing.T, e *env.Env, a *env.Agent) {
	probeKillsInTime(t, e, a, "stuck", "containers:\n", "")
}

// sidecarHasItsGrace is probeHasItsGrace with a sidecar.
func sidecarHasItsGrace(t *testing.T, e *env.Env, a *env.Agent) {
	probeKillsInTime(t, e, a, "aside-stuck", "initContainers:\n",
		strings.Replace(aside, "main", "other", 1))
}

// probeKillsInTime runs a pod whose container ignores its signal and fails its liveness probe. With
// more in the pod's spec the container is a sidecar.
func probeKillsInTime(t *testing.T, e *env.Env, a *env.Agent, pod, kind, more string) {
	_ = traced(t, a, pod, "terminationGracePeriodSeconds: 3600\n"+kind,
		ofKind(more, noting("main",
			`trap "" TERM; `+noteStart+
				`[ $(grep -c main /trace/log) -ge 2 ] && exec sleep 0.1; while true; do sleep 1; done`,
			"livenessProbe: {exec: {command: [sh, -c, '[ $(grep -c main /trace/log) -ge 2 ]']}, periodSeconds: 1, "+
				"timeoutSeconds: 30, failureThreshold: 1, terminationGracePeriodSeconds: 1}"))+more)
	p := waitPod(t, a, pod, "restarted", restarted("main", 1))
	if end := statusOf(p, "main").LastTerminationState.Terminated; end == nil ||
		end.ExitCode != 137 && end.ExitCode != 0 {
		t.Errorf("main ended with %+v", end)
	}
	removed(t, e, a, pod)
}

// postStartFirst checks that while a container's postStart hook runs, the container is not probed
// and counts as not started, and the containers after it wait.
func postStartFirst(t *testing.T, e *env.Env, a *env.Agent) {
	log := traced(t, a, "hooked", "terminationGracePeriodSeconds: 5\ncontainers:\n",
		noting("main", untilSignal,
			"lifecycle: {postStart: {exec: {command: [sh, -c, 'until grep -qx main /trace/log; do sleep 0.2; done; "+
				"echo hook >> /trace/log; while [ ! -e /trace/go ]; do sleep 0.2; done; echo hooked >> /trace/log']}}}",
			"livenessProbe: {exec: {command: [sh, -c, 'echo probe >> /trace/log']}, periodSeconds: 1, "+
				"timeoutSeconds: 30}"),
		noting("next", untilSignal))
	waitTrace(t, log, "hook")
	p := waitPod(t, a, "hooked", "told of with its container", func(p *corev1.Pod) error {
		if c := statusOf(p, "main"); c.ContainerID == "" {
			return fmt.Errorf("main is %+v", c.State)
		}
		return nil
	})
	if c := statusOf(p, "main"); c.Ready || c.Started != nil && *c.Started || statusOf(p, "next").ContainerID != "" {
		t.Errorf("while the hook runs, the containers are %+v", p.Status.ContainerStatuses)
	}
	inside(t, a, "hooked", "main", "sh", "-c", "sleep 3; touch /trace/go")
	a.WaitReady(t, "hooked")
	waitTrace(t, log, "probe", "next")
	inOrder(t, log, "main", "hook", "hooked", "next")
	if got := lines(log); slices.Index(got, "probe") < slices.Index(got, "hooked") {
		t.Errorf("the container was probed while its hook ran: %q", got)
	}
	removed(t, e, a, "hooked")
}

// signalled puts a pod that ends only on the signal USR1.
func signalled(t *testing.T, a *env.Agent) (log string) {
	return traced(t, a, "signalled", "terminationGracePeriodSeconds: 5\nos: {name: linux}\ncontainers:\n",
		noting("main",
			`trap "echo term >> /trace/log" TERM; trap "echo usr1 >> /trace/log; exit 0" USR1; `+noteStart+
				`while true; do sleep 1 & wait $!; done`, "lifecycle: {stopSignal: SIGUSR1}"))
}

// signalStops checks that a container is stopped by the signal of its spec, and that its status has
// the signal.
func signalStops(t *testing.T, e *env.Env, a *env.Agent) {
	log := signalled(t, a)
	a.WaitReady(t, "signalled")
	waitTrace(t, log, "main")
	if got := statusOf(podOf(t, a, "signalled"), "main").StopSignal; got == nil || *got != corev1.SIGUSR1 {
		t.Errorf("the status says %v", got)
	}
	removed(t, e, a, "signalled")
	if got := lines(log); !slices.Equal(got, []string{"main", "usr1"}) {
		t.Errorf("the notes are %q", got)
	}
}

// signalUnknown checks that a runtime without stop signals sends its own signal, and that an event
// reports it.
func signalUnknown(t *testing.T, e *env.Env, a *env.Agent) {
	log := signalled(t, a)
	a.WaitReady(t, "signalled")
	waitTrace(t, log, "main")
	waitEvent(t, a, "StopSignalNotSupported", "lifecycle.stopSignal SIGUSR1 has no effect")
	removed(t, e, a, "signalled")
	if got := lines(log); !slices.Equal(got, []string{"main", "term"}) {
		t.Errorf("the notes are %q", got)
	}
}

// backoffAsAsked checks that a pod may ask for shorter delays between its crashes, within the
// node's limits. With the node's own delays, five restarts take more than two minutes.
func backoffAsAsked(t *testing.T, e *env.Env, a *env.Agent) {
	a.WriteManifest(t, "eager.yaml", strings.Replace(manifest("eager", `
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, 'exit 5']
`), "  name: eager\n",
		"  name: eager\n  annotations: {berth.dev/crash-loop-initial-delay: 1s, berth.dev/crash-loop-max-delay: 2s}\n",
		1))
	waitPod(t, a, "eager", "restarted five times", restarted("main", 5))
	removed(t, e, a, "eager")
}

// portsConflict checks that two pods cannot have the same port of the host. The second pod reports
// the conflict, and the first is not affected.
func portsConflict(t *testing.T, e *env.Env, a *env.Agent) {
	const spec = "hostNetwork: true\n" + sleeper + "    ports: [{containerPort: 18907}]\n"
	put(t, a, "holds", spec)
	a.WaitReady(t, "holds")
	before := running(podOf(t, a, "holds"))
	put(t, a, "wants", spec)
	p := waitPod(t, a, "wants", "refused", phase(corev1.PodFailed))
	if p.Status.Reason != "NodePorts" ||
		p.Status.Message != "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the "+
			"requested pod ports" {
		t.Errorf("the pod failed with %s: %s", p.Status.Reason, p.Status.Message)
	}
	if after := running(podOf(t, a, "holds")); after != before {
		t.Errorf("the first pod was %s and is %s", before, after)
	}
	removed(t, e, a, "wants")
	removed(t, e, a, "holds")
}

// hugeIsBounded checks that a huge termination log or a huge output of a probe's command does no
// harm. If a command prints 16 MiB or more, containerd itself loses its exit code.
func hugeIsBounded(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "last-words", `
restartPolicy: Never
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, 'head -c 104857600 /dev/zero | tr "\0" x > /dev/termination-log; echo -n end >> /dev/termination-log']
`)
	put(t, a, "talks", `
terminationGracePeriodSeconds: 1
containers:
  - name: much
    image: berth.local/busybox:v1
    command: [sleep, infinity]
    readinessProbe: {exec: {command: [head, -c, "10000000", /dev/zero]}, periodSeconds: 5, timeoutSeconds: 30}
  - name: endless
    image: berth.local/busybox:v1
    command: [sleep, infinity]
    readinessProbe: {exec: {command: ["yes"]}, periodSeconds: 5, timeoutSeconds: 1}
`)
	p := waitPod(t, a, "last-words", "over", phase(corev1.PodSucceeded))
	end := statusOf(p, "main").State.Terminated
	if want := strings.Repeat("x", 4093) + "end"; end == nil || end.Message != want {
		t.Errorf("the container ended with %.200v", end)
	}
	waitPod(t, a, "talks", "probed", func(p *corev1.Pod) error {
		if !statusOf(p, "much").Ready {
			return fmt.Errorf("the one that prints much is not ready")
		}
		return nil
	})
	waitEvent(t, a, "Unhealthy", `Readiness probe failed: command timed out: "yes" timed out after 1s`)
	if statusOf(podOf(t, a, "talks"), "endless").Ready {
		t.Error("the one that prints for ever is ready")
	}
	removed(t, e, a, "last-words")
	removed(t, e, a, "talks")
}

// debugOutlasts checks that a container that berth debug adds to a pod sees the processes of its
// target, and still exists after a restart and a kill of the agent.
func debugOutlasts(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "subject", `
terminationGracePeriodSeconds: 1
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sleep, "86399"]
`)
	a.WaitReady(t, "subject")
	before := running(podOf(t, a, "subject"))
	out, errOut, code := a.CLI("debug", "subject", "--image", "berth.local/busybox:v1", "--target", "main", "-c",
		"look", "--", "sh", "-c", "ps; exec sleep 86398")
	if code != 0 {
		t.Fatalf("berth debug: code %d, %s%s", code, out, errOut)
	}
	look := func(p *corev1.Pod) corev1.ContainerStatus {
		if all := p.Status.EphemeralContainerStatuses; len(all) == 1 {
			return all[0]
		}
		return corev1.ContainerStatus{}
	}
	looking := func(p *corev1.Pod) error {
		if c := look(p); c.State.Running == nil {
			return fmt.Errorf("the container is %+v", c)
		}
		return nil
	}
	id := look(waitPod(t, a, "subject", "looked into", looking)).ContainerID
	env.Eventually(t, "what ps prints", func() error {
		if out, _, _ := a.CLI("logs", "subject", "-c", "look"); !strings.Contains(out, "sleep 86399") {
			return fmt.Errorf("it printed %q", out)
		}
		return nil
	})
	for what, again := range map[string]func() error{
		"a restart": a.Restart, "a kill": func() error { a.Kill9(); return a.Start() },
	} {
		if err := again(); err != nil {
			t.Fatal(err)
		}
		a.WaitUp(t)
		p := waitPod(t, a, "subject", "looked into after "+what, looking)
		if got := look(p).ContainerID; got != id || running(p) != before || len(p.Spec.EphemeralContainers) != 1 ||
			p.Spec.EphemeralContainers[0].TargetContainerName != "main" {
			t.Errorf("after %s it is %s, want %s; the pod is %s and was %s", what, got, id, running(p), before)
		}
		if got := inside(t, a, "subject", "look", "echo", "here"); got != "here\n" {
			t.Errorf("after %s it says %q", what, got)
		}
	}
	// Short commands end before there is a connection, or while there is one. What was printed before
	// it and after the look at the log comes at the end.
	for _, lasts := range []string{"0", "0.2", "1"} {
		out, errOut, code := a.CLI("debug", "-i", "subject", "--image", "berth.local/busybox:v1", "-q", "--", "sh",
			"-c", "echo first; sleep "+lasts+"; echo last; exit 5")
		if code != 5 || out != "first\nlast\n" && out != "last\nfirst\n" {
			t.Errorf("a command of %s s under debug -i: code %d, %q, %s", lasts, code, out, errOut)
		}
	}
	began := time.Now()
	removed(t, e, a, "subject")
	t.Logf("the pod was gone %s after its manifest", time.Since(began).Round(time.Second))
}
