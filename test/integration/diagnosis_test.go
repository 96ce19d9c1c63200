//go:build integration

package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// healthyPods is how many pods of TestDiagnosis are well.
const healthyPods = 54

// brokenPod is a pod that needs a person.
type brokenPod struct {
	spec string
	// cause is in the status of the node, and why in the first line of "berth why".
	cause, why string
}

// brokenPods are broken in different ways.
var brokenPods = map[string]brokenPod{
	"crash": {
		"containers: [{name: main, image: berth.local/busybox:v1, command: [sh, -c, 'exit 3']}]",
		"container main: CrashLoopBackOff: it last ended with exit code 3 (Error)", "exit code 3 (Error)",
	},
	"image": {
		"containers: [{name: main, image: berth.local/absent:v1, imagePullPolicy: Never}]",
		"container main: ErrImageNeverPull: ", "main: ErrImageNeverPull: ",
	},
	"config": {
		"containers: [{name: main, image: berth.local/web:v1, args: [sleep], volumeMounts: [{name: v, mountPath: /v}]}]\n" +
			"volumes: [{name: v, configMap: {name: absent}}]",
		`"absent" not found`, `"absent" not found`,
	},
	"probe": {
		"containers: [{name: main, image: berth.local/web:v1, args: [sleep], readinessProbe: {tcpSocket: {port: 9}, " +
			"periodSeconds: 1}}]",
		"waits for container main to pass its readiness probe; Readiness probe failed: ", "Readiness probe failed: ",
	},
	"memory": {
		"containers: [{name: main, image: berth.local/busybox:v1, command: [tail, /dev/zero], " +
			"resources: {limits: {memory: 20Mi}}}]",
		"container main: CrashLoopBackOff: it last ended with exit code 137 (OOMKilled, SIGKILL)", "OOMKilled",
	},
	"large": {
		"containers: [{name: main, image: berth.local/web:v1, resources: {requests: {cpu: '10000'}}}]",
		"Failed: OutOfcpu: ", "OutOfcpu: ",
	},
}

// TestDiagnosis has many pods, some of them broken in different ways: the status names the cause of
// each of these and nothing else, and the first line of why names it, too. One of them was well
// before its manifest changed: why says what changed. Then containerd dies: every command says so.
func TestDiagnosis(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	names := []string{"crash"}
	put(t, a, "crash", sleeper)
	for i := range healthyPods {
		names = append(names, fmt.Sprintf("well-%d", i))
		put(t, a, names[len(names)-1], "hostNetwork: true\n"+sleeper)
	}
	a.WaitReady(t, names...)
	for name, pod := range brokenPods {
		put(t, a, name, "terminationGracePeriodSeconds: 0\n"+pod.spec)
	}
	env.Eventually(t, "the status to name each cause", func() error { return namesCauses(t, a) })
	for name, pod := range brokenPods {
		env.Eventually(t, "why to name the cause of "+name, func() error {
			out, errOut, code := a.CLI("why", name)
			if first, _, _ := strings.Cut(out, "\n"); code != 0 || !strings.Contains(first, pod.why) {
				return fmt.Errorf("code %d, no %q in %q %s", code, pod.why, first, errOut)
			}
			return nil
		})
	}
	const change = "Its manifest changed: spec.containers[0].args, spec.containers[0].command, " +
		"spec.containers[0].image, spec.terminationGracePeriodSeconds"
	if c := why(t, a, "crash").LastChange; c == nil || c.Message != change {
		t.Errorf("what changed before the crashes: %+v", c)
	}
	if c := why(t, a, "image").LastChange; c != nil {
		t.Errorf("what changed about a new pod: %+v", c)
	}
	deadRuntime(t, e, a)
}

// namesCauses checks that the status names the broken pods and no other, each with its cause.
func namesCauses(t *testing.T, a *env.Agent) error {
	t.Helper()
	out, errOut, code := a.CLI("status", "-o", "json")
	if code != 3 {
		return fmt.Errorf("code %d, %s%s", code, out, errOut)
	}
	var missing []string
	for name, pod := range brokenPods {
		found := false
		for line := range strings.SplitSeq(out, "\n") {
			line = strings.ReplaceAll(line, `\"`, `"`)
			found = found || strings.Contains(line, "pod default/"+name+"-"+env.NodeName+": ") &&
				strings.Contains(line, pod.cause)
		}
		if !found {
			missing = append(missing, fmt.Sprintf("no cause of %s: %s", name, pod.cause))
		}
	}
	if n := strings.Count(out, "pod default/"); n != len(brokenPods) {
		missing = append(missing, fmt.Sprintf("%d pods are named", n))
	}
	if len(missing) > 0 {
		return errors.New(strings.Join(missing, "\n") + "\n" + out)
	}
	return nil
}

// deadRuntime kills containerd. What asks about the node or its pods says first that the runtime
// does not answer, until it is there again; the pods run on.
func deadRuntime(t *testing.T, e *env.Env, a *env.Agent) {
	t.Helper()
	was := podOf(t, a, "well-0")
	before := running(was)
	if err := e.Kill9(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the status to name the dead runtime first", func() error {
		st, errOut, code := a.CLI("status")
		_, attention, _ := strings.Cut(st, "Needs a person:\n")
		if code != 3 || !strings.HasPrefix(attention, "  - the container runtime at ") {
			return fmt.Errorf("code %d, %s%s", code, st, errOut)
		}
		return nil
	})
	waitEvent(t, a, "RuntimeUnavailable", "does not answer")
	for _, verb := range [][]string{{"ps"}, {"why", "well-0"}, {"describe", "well-0"}} {
		if out, errOut, _ := a.CLI(verb...); !strings.Contains(errOut, "what follows is what was last known") {
			t.Errorf("berth %v says nothing of the runtime: %s%s", verb, out, errOut)
		}
	}
	if got := metric(t, a, "berth_runtime_up"); got != "0" {
		t.Errorf("berth_runtime_up %q", got)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the status to name the broken pods alone", func() error { return namesCauses(t, a) })
	p := waitPod(t, a, "well-0", "running", phase(corev1.PodRunning))
	if after := running(p); after != before && !e.GaveUpOn(was.Status.ContainerStatuses[0].ContainerID) {
		t.Errorf("a pod that was well was %s and is %s", before, after)
	}
}
