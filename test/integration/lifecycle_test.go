//go:build integration

package integration

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// TestLifecycle checks on containerd what the scenarios of test/scenario expect: the order in which
// containers start, end and start again.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{Berth: "crashLoopBackOff: {podMinDelay: 1s}"})
	a.WaitUp(t)
	t.Run("pods", func(t *testing.T) {
		onOneAgent(t, e, a, podTests{
			"sidecars": sidecarsInOrder, "job": jobEndsSidecars, "sidecar restarts": sidecarRestarts,
			"rules": rulesRestart, "restart all": restartsAll,
			"deadline": deadlineEnds, "probe kills": probeKillsForGood, "probe grace": probeHasItsGrace,
			"sidecar grace": sidecarHasItsGrace,
			"postStart":     postStartFirst,
			"signal":        signalStops, "backoff": backoffAsAsked, "ports": portsConflict, "huge": hugeIsBounded,
		})
	})
	t.Run("debug", func(t *testing.T) { debugOutlasts(t, e, a) })
	nothingLeft(t, e.Leaks)
}

// TestLifecycleOnDebian does so with some of the pods on the host's old containerd, and checks what
// that containerd cannot do.
func TestLifecycleOnDebian(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{Version: env.ContainerdDebian})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	signal := signalUnknown
	if e.Native { // which sends the signals itself
		signal = signalStops
	}
	t.Run("pods", func(t *testing.T) {
		onOneAgent(t, e, a, podTests{
			"sidecars": sidecarsInOrder, "job": jobEndsSidecars, "restart all": restartsAll,
			"probe grace": probeHasItsGrace, "signal": signal,
		})
	})
	t.Run("debug", func(t *testing.T) { debugOutlasts(t, e, a) })
	nothingLeft(t, e.Leaks)
}

// noteStart is the script that records that the container has started. If a signal matters, the
// script sets its trap before, because the first process of a container does not get a signal for
// which it has no trap.
const noteStart = `echo NAME >> /trace/log; `

// untilSignal is a script that records its start, runs until its signal, and records its end. NAME
// is replaced.
const (
	untilSignal = setTrap + noteStart + forever
	setTrap     = `trap "echo NAME-term >> /trace/log; exit 0" TERM; `
	forever     = `while true; do sleep 1 & wait $!; done`
)

// noting returns a container that records its name in the file log of the volume trace when it
// starts. If the script does not record the start itself, this happens before the script.
func noting(name, script string, fields ...string) string {
	if !strings.Contains(script, noteStart) {
		script = noteStart + script
	}
	script = strings.ReplaceAll(script, "NAME", name)
	return fmt.Sprintf("  - name: %s\n    image: berth.local/busybox:v1\n    command: [sh, -c, '%s']\n"+
		"    volumeMounts: [{name: trace, mountPath: /trace}]\n    %s\n",
		name, script, strings.Join(fields, "\n    "))
}

// traced puts a pod whose containers record what happens to them, and returns the file with the
// records.
func traced(t *testing.T, a *env.Agent, name string, spec ...string) (log string) {
	t.Helper()
	dir := t.TempDir()
	put(t, a, name, "volumes: [{name: trace, hostPath: {path: "+dir+"}}]\n"+strings.Join(spec, ""))
	return filepath.Join(dir, "log")
}

// waitTrace waits until all of the notes are in the log.
func waitTrace(t *testing.T, log string, notes ...string) {
	t.Helper()
	env.Eventually(t, fmt.Sprintf("the notes %q", notes), func() error {
		have := lines(log)
		for _, note := range notes {
			if !slices.Contains(have, note) {
				return fmt.Errorf("there is no %s in %q", note, have)
			}
		}
		return nil
	})
}

// inOrder checks that the notes were written one after the other. Other notes may be between them,
// and the last notes may be missing.
func inOrder(t *testing.T, log string, notes ...string) {
	t.Helper()
	env.Eventually(t, fmt.Sprintf("the notes %q in this order", notes), func() error {
		have := lines(log)
		rest := have
		for _, note := range notes {
			at := slices.Index(rest, note)
			if at < 0 {
				return fmt.Errorf("they are %q", have)
			}
			rest = rest[at+1:]
		}
		return nil
	})
}

// count returns how often a note was written.
func count(log, note string) (n int) {
	for _, line := range lines(log) {
		if line == note {
			n++
		}
	}
	return n
}

// restarted checks that a container has been restarted at least so often.
func restarted(container string, times int32) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		if n := statusOf(p, container).RestartCount; n < times {
			return fmt.Errorf("%s has %d restarts", container, n)
		}
		return nil
	}
}

// sidecarsInOrder checks that a sidecar has started before the next container starts. When the pod
// ends, the sidecars' preStop hooks run first. Their signals come after the end of the pod's main
// containers, in reverse order (KEP-753).
func sidecarsInOrder(t *testing.T, e *env.Env, a *env.Agent) {
	hook := func(name string) string {
		return "lifecycle: {preStop: {exec: {command: [sh, -c, 'echo " + name + "-hook >> /trace/log']}}}"
	}
	hasNoted := func(name string) string {
		return "startupProbe: {exec: {command: [grep, -qx, " + name +
			", /trace/log]}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 100}"
	}
	log := traced(t, a, "sidecars", "terminationGracePeriodSeconds: 30\ninitContainers:\n",
		noting("first", "true"),
		noting("proxy", strings.Replace(untilSignal, noteStart, noteStart+"sleep 2; echo proxy-up >> /trace/log; ", 1),
			"restartPolicy: Always", hook("proxy"), hasNoted("proxy-up")),
		noting("second", "true"),
		noting("shipper", untilSignal, "restartPolicy: Always", hook("shipper"), hasNoted("shipper")),
		"containers:\n",
		// The main container waits for the sidecars' hooks. If the hooks ran only after its end, it
		// would have to be killed.
		noting("main",
			`trap "echo main-term >> /trace/log; until grep -q proxy-hook /trace/log && grep -q shipper-hook `+
				`/trace/log; do sleep 0.2; done; echo main-end >> /trace/log; exit 0" TERM; `+
				noteStart+`while true; do sleep 1 & wait $!; done`))
	a.WaitReady(t, "sidecars")
	inOrder(t, log, "first", "proxy", "proxy-up", "second", "shipper", "main")
	removed(t, e, a, "sidecars")
	inOrder(t, log, "main-term", "main-end", "shipper-term", "proxy-term")
}

// jobEndsSidecars checks that a pod is finished when its main containers have ended for good,
// whatever its sidecars do.
func jobEndsSidecars(t *testing.T, e *env.Env, a *env.Agent) {
	log := traced(t, a, "job", "terminationGracePeriodSeconds: 10\nrestartPolicy: OnFailure\ninitContainers:\n",
		noting("proxy", untilSignal, "restartPolicy: Always"),
		"containers:\n",
		noting("main",
			"until grep -qx proxy /trace/log; do sleep 0.2; done; "+noteStart+"[ $(grep -c main /trace/log) -ge 2 ]"))
	p := waitPod(t, a, "job", "over", phase(corev1.PodSucceeded))
	inOrder(t, log, "proxy", "main", "main", "proxy-term")
	if c := statusOf(p, "main"); c.RestartCount != 1 {
		t.Errorf("main is %+v, want one restart", c)
	}
	removed(t, e, a, "job")
}

// sidecarRestarts checks that a sidecar that ends is started again, even if nothing else of the pod
// would be.
func sidecarRestarts(t *testing.T, e *env.Env, a *env.Agent) {
	log := traced(t, a, "unsteady", "terminationGracePeriodSeconds: 5\nrestartPolicy: Never\ninitContainers:\n",
		noting("proxy", noteStart+"[ $(grep -c proxy /trace/log) -ge 2 ] || exit 3; "+setTrap+forever,
			"restartPolicy: Always"),
		"containers:\n", noting("main", untilSignal))
	p := waitPod(t, a, "unsteady", "restarted", restarted("proxy", 1))
	if c := statusOf(p, "proxy"); c.LastTerminationState.Terminated == nil ||
		c.LastTerminationState.Terminated.ExitCode != 3 {
		t.Errorf("the sidecar is %+v", c)
	}
	waitTrace(t, log, "main")
	if n := count(log, "main"); n != 1 {
		t.Errorf("main started %d times", n)
	}
	removed(t, e, a, "unsteady")
}

// rulesRestart checks that an exit code in a rule restarts a container of a pod that otherwise
// restarts nothing (KEP-5307).
func rulesRestart(t *testing.T, e *env.Env, a *env.Agent) {
	log := traced(t, a, "rules", "restartPolicy: Never\ncontainers:\n",
		noting("main", "[ $(grep -c main /trace/log) -ge 2 ] || exit 42; exit 7", "restartPolicy: Never",
			"restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]"))
	p := waitPod(t, a, "rules", "over", phase(corev1.PodFailed))
	c := statusOf(p, "main")
	if n := count(log, "main"); n != 2 || c.RestartCount != 1 || c.State.Terminated == nil ||
		c.State.Terminated.ExitCode != 7 {
		t.Errorf("main started %d times and is %+v", n, c)
	}
	removed(t, e, a, "rules")
}

// restartsAll checks that an exit code can restart the whole pod in place. The init containers run
// again, and the address and the volumes stay (KEP-5532).
func restartsAll(t *testing.T, e *env.Env, a *env.Agent) {
	log := traced(t, a, "whole", "terminationGracePeriodSeconds: 5\nrestartPolicy: Never\ninitContainers:\n",
		noting("setup", "true"), noting("proxy", untilSignal, "restartPolicy: Always"),
		"containers:\n",
		noting("main",
			noteStart+
				"[ $(grep -c main /trace/log) -ge 2 ] || { while [ ! -e /trace/go ]; do sleep 0.2; done; exit 88; }; "+
				setTrap+forever, "restartPolicy: Never",
			"restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]"),
		noting("other", untilSignal))
	a.WaitReady(t, "whole")
	before := podOf(t, a, "whole")
	waitTrace(t, log, "setup", "proxy", "main", "other")
	inside(t, a, "whole", "other", "touch", "/trace/go")
	after := waitPod(t, a, "whole", "restarted as a whole", func(p *corev1.Pod) error {
		for _, name := range []string{"setup", "proxy", "main", "other"} {
			if err := restarted(name, 1)(p); err != nil {
				return err
			}
		}
		if !env.Ready(p) {
			return fmt.Errorf("not ready")
		}
		return nil
	})
	for _, name := range []string{"setup", "proxy", "main", "other"} {
		inOrder(t, log, name, name)
		if n := count(log, name); n != 2 {
			t.Errorf("%s started %d times: %q", name, n, lines(log))
		}
	}
	if before.UID != after.UID || before.Status.PodIP != after.Status.PodIP || len(sandboxesOf(t, e, after)) != 1 {
		t.Errorf("the pod was %s at %s and is %s at %s", before.UID, before.Status.PodIP, after.UID, after.Status.PodIP)
	}
	removed(t, e, a, "whole")
}
