//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// nativePod is a pod with all that a life has: an init container, hooks and probes. Its hook has
// more time than a busy machine needs, and the container ends at once when it is told to.
const nativePod = `
terminationGracePeriodSeconds: 120
initContainers:
  - name: prepare
    image: berth.local/busybox:v1
    command: [sh, -c, 'echo prepared > /trace/index.html']
    volumeMounts: [{name: trace, mountPath: /trace}]
containers:
  - name: main
    image: berth.local/busybox:v1
    command:
      - sh
      - -c
      - |
        trap 'exit 0' TERM
        echo serving
        test -e /trace/index.html || echo anew > /trace/index.html
        httpd -f -p 8080 -h /trace & wait $!
    lifecycle:
      postStart: {exec: {command: [sh, -c, 'echo started > /trace/started']}}
      preStop: {exec: {command: [sh, -c, 'echo stopping > /outside/stopping']}}
    startupProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 300}
    readinessProbe: {exec: {command: [test, -e, /trace/started]}, periodSeconds: 1, timeoutSeconds: 60}
    livenessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 60}
    volumeMounts:
      - {name: trace, mountPath: /trace}
      - {name: outside, mountPath: /outside}
volumes:
  - {name: trace, emptyDir: {}}
  - {name: outside, hostPath: {path: %s}}
`

// TestNativeLife runs a pod by the native runtime, on a containerd without a CRI plugin: from its
// init container to its preStop hook, with commands, logs, a forwarded port and a restart of the
// agent.
func TestNativeLife(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{Native: true})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	outside := t.TempDir()
	put(t, a, "life", fmt.Sprintf(nativePod, outside))
	a.WaitReady(t, "life")
	before := podOf(t, a, "life")
	if got := inside(t, a, "life", "main", "cat", "/trace/index.html"); got != "prepared\n" {
		t.Errorf("the init container wrote %q", got)
	}
	if out, _, _ := a.CLI("logs", "life"); out != "serving\n" {
		t.Errorf("the log is %q", out)
	}
	x, port := forward(t, a, "life", "8080")
	if body := through(t, port); body != "prepared\n" {
		t.Errorf("the forwarded port answers %q", body)
	}
	x.interrupt(t)
	for name, again := range map[string]func() error{
		"a restart": a.Restart, "a kill": func() error { a.Kill9(); return a.Start() },
	} {
		if err := again(); err != nil {
			t.Fatal(err)
		}
		a.WaitUp(t)
		a.WaitReady(t, "life")
		if after := podOf(t, a, "life"); running(after) != running(before) {
			t.Errorf("after %s the pod is %s, and was %s", name, running(after), running(before))
		}
		if got := inside(t, a, "life", "main", "cat", "/trace/index.html"); got != "prepared\n" {
			t.Errorf("after %s the container has %q", name, got)
		}
	}
	inside(t, a, "life", "main", "rm", "/trace/index.html") // so that the liveness probe fails
	waitPod(t, a, "life", "its restart", func(p *corev1.Pod) error {
		if c := statusOf(p, "main"); c.RestartCount != 1 || !c.Ready {
			return fmt.Errorf("the container was restarted %d times, ready %t", c.RestartCount, c.Ready)
		}
		return nil
	})
	if out, _, _ := a.CLI("logs", "life", "--previous"); out != "serving\n" {
		t.Errorf("the log of the first instance is %q", out)
	}
	removed(t, e, a, "life")
	if got := lines(outside + "/stopping"); len(got) != 1 {
		t.Errorf("the preStop hook wrote %q", got)
	}
	nothingLeft(t, e.Leaks)
}

// movingPod is a pod whose container the agent restarts when a file is missing. When it ends, it
// writes to the log. A busy machine makes the agent restart or kill no container: the liveness
// probe counts only once the container has made its file, and all limits are long.
const movingPod = `
terminationGracePeriodSeconds: 120
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, 'trap "echo ended; exit 0" TERM; touch /tmp/alive; echo began; while true; do sleep 1 & wait $!; done']
    startupProbe: {exec: {command: [test, -e, /tmp/alive]}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 300}
    livenessProbe: {exec: {command: [test, -e, /tmp/alive]}, periodSeconds: 1, timeoutSeconds: 60}
`

// TestMovingOver changes the agent's runtime while a pod runs, from the CRI socket to the native
// runtime and back. The pod runs on where it is: it is probed, restarted, logged and stopped there.
// A new pod is made by the new runtime. When the old pod is gone, nothing of it is left.
func TestMovingOver(t *testing.T) {
	t.Parallel()
	remoteOnly(t, "it needs a CRI plugin")
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	for _, native := range []bool{true, false} {
		before, after := fmt.Sprintf("before-%t", native), fmt.Sprintf("after-%t", native)
		put(t, a, before, movingPod)
		a.WaitReady(t, before)
		was := podOf(t, a, before)
		if err := a.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := e.SetNative(t.Context(), a, native); err != nil {
			t.Fatal(err)
		}
		if err := a.Start(); err != nil {
			t.Fatal(err)
		}
		a.WaitUp(t)
		put(t, a, after, movingPod)
		a.WaitReady(t, before, after)
		if is := podOf(t, a, before); mainID(is) != mainID(was) {
			t.Errorf("the pod's container was %s and is %s", mainID(was), mainID(is))
		}
		// The CRI plugin knows the pods that it has made, and no others.
		byPlugin := map[string]bool{before: native, after: !native}
		for pod, want := range byPlugin {
			if got := len(sandboxesOf(t, e, podOf(t, a, pod))) == 1; got != want {
				t.Errorf("native %t: the CRI plugin has the pod %s: %t, want %t", native, pod, got, want)
			}
		}
		inside(t, a, before, "main", "rm", "/tmp/alive")
		waitPod(t, a, before, "its restart", func(p *corev1.Pod) error {
			if c := statusOf(p, "main"); c.RestartCount != 1 || !c.Ready {
				return fmt.Errorf("the container was restarted %d times, ready %t", c.RestartCount, c.Ready)
			}
			return nil
		})
		if out, _, _ := a.CLI("logs", before, "--previous"); out != "began\nended\n" {
			t.Errorf("the log of the first instance is %q", out)
		}
		removed(t, e, a, before)
		removed(t, e, a, after)
	}
	nothingLeft(t, e.Leaks)
}

// mainID returns the ID of a pod's container main, without the name of the runtime.
func mainID(p *corev1.Pod) string {
	_, id, _ := strings.Cut(statusOf(p, "main").ContainerID, "://")
	return id
}

// remoteOnly skips a test where the agents run natively.
func remoteOnly(t *testing.T, why string) {
	t.Helper()
	if env.NativeByDefault() {
		t.Skip("not with the native runtime: " + why)
	}
}
