//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/env"
)

// TestLife runs pods of every kind from their manifest to their end, at the same time on one agent,
// and then looks for what the pods left.
func TestLife(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	t.Run("pods", func(t *testing.T) {
		onOneAgent(t, e, a, podTests{
			"sample": sampleAnswers, "edit": editReplaces, "grace": deleteKeepsGrace, "values": valuesReach,
			"hosts": namesResolve, "back": backStartsAnew,
			"liveness": livenessRestarts, "readiness": readinessFlips, "startup": startupGates, "hooks": hooksRun,
			"messages": endsAreReported, "crash loop": crashLoops, "oom": memoryEnds, "host network": hostNetwork,
			"cgroups": cgroupsLimit,
		})
	})
	t.Run("finished", func(t *testing.T) { finishedStayFinished(t, e, a) })
	nothingLeft(t, e.Leaks)
}

// TestLifeOnDebian runs a few pods from their manifest to their end on the host's old containerd,
// which has no events.
func TestLifeOnDebian(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{Version: env.ContainerdDebian})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	t.Run("pods", func(t *testing.T) {
		onOneAgent(t, e, a, podTests{
			"sample": sampleAnswers, "grace": deleteKeepsGrace, "liveness": livenessRestarts,
			"messages": endsAreReported,
		})
	})
	t.Run("finished", func(t *testing.T) { finishedStayFinished(t, e, a) })
	nothingLeft(t, e.Leaks)
}

// sampleAnswers checks that the sample pod returns over HTTP what its ConfigMap has, before and
// after an edit of the ConfigMap's file.
func sampleAnswers(t *testing.T, e *env.Env, a *env.Agent) {
	text, err := os.ReadFile(filepath.Join(e.Checkout, "configs", "samples", "manifests", "hello.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	a.WriteManifest(t, "hello.yaml", string(text))
	a.WaitReady(t, "hello")
	p := podOf(t, a, "hello")
	body, err := ask(t, "GET", p, "/")
	if err != nil || body != "Hello from a ConfigMap.\n" {
		t.Fatalf("the pod answers %q, %v", body, err)
	}
	for _, want := range []string{"Hello, prepared", "started"} {
		env.Eventually(t, want, func() error {
			if out, _, _ := a.CLI("logs", "hello", "-c", "follow"); !strings.Contains(out, want) {
				return fmt.Errorf("the other container shows %q", out)
			}
			return nil
		})
	}
	if got := inside(t, a, "hello", "web", "/testapp", "cat", "/secret/token"); got != "not-so-secret" {
		t.Errorf("the secret's file has %q", got)
	}
	for name, want := range map[string]string{"GREETING": "Hello", "TOKEN": "not-so-secret", "POD_IP": p.Status.PodIP} {
		if got, err := ask(t, "GET", p, "/env?name="+name); err != nil || got != want+"\n" {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
		}
	}
	before := running(p)
	a.WriteManifest(t, "hello.yaml", strings.Replace(string(text), "Hello from a ConfigMap.", "Hello again.", 1))
	env.Eventually(t, "the edited text", func() error {
		body, err := ask(t, "GET", p, "/")
		if err != nil {
			return fmt.Errorf("asking the pod: %w", err)
		}
		if body != "Hello again.\n" {
			return fmt.Errorf("the pod answers %q", body)
		}
		return nil
	})
	if after := running(podOf(t, a, "hello")); after != before {
		t.Errorf("editing the ConfigMap changed the pod from %s to %s", before, after)
	}
	removed(t, e, a, "hello")
}

// tracer is a pod that writes what happens to it to a folder of the host. It takes some time to
// end.
func tracer(dir, version string) string {
	return fmt.Sprintf(`
terminationGracePeriodSeconds: 30
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, 'trap "echo term-%[1]s >> /trace/log; sleep 1; echo end-%[1]s >> /trace/log; exit 0" TERM; echo start-%[1]s >> /trace/log; while true; do sleep 1 & wait $!; done']
    lifecycle:
      preStop:
        exec:
          command: [sh, -c, 'echo prestop-%[1]s >> /trace/log; sleep 1; echo prestopped-%[1]s >> /trace/log']
    volumeMounts:
      - {name: trace, mountPath: /trace}
volumes:
  - name: trace
    hostPath: {path: %[2]s}
`, version, dir)
}

// editReplaces checks that the old pod runs its preStop hook and gets its grace, and that its
// sandbox stops before the new pod starts.
func editReplaces(t *testing.T, e *env.Env, a *env.Agent) {
	events := record(t, e)
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	put(t, a, "edit", tracer(dir, "1"))
	a.WaitReady(t, "edit")
	env.Eventually(t, "the first version's start", func() error {
		if !slices.Equal(lines(log), []string{"start-1"}) {
			return fmt.Errorf("the trace is %q", lines(log))
		}
		return nil
	})
	first := podOf(t, a, "edit")
	old := sandboxesOf(t, e, first)[0].Id
	put(t, a, "edit", tracer(dir, "2"))
	second := waitPod(t, a, "edit", "replaced", func(p *corev1.Pod) error {
		if p.UID == first.UID || !env.Ready(p) {
			return errors.New("not the new version, or not ready")
		}
		return nil
	})
	env.Eventually(t, "the second version's start", func() error {
		want := []string{"start-1", "prestop-1", "prestopped-1", "term-1", "end-1", "start-2"}
		if got := lines(log); !slices.Equal(got, want) {
			return fmt.Errorf("the trace is %q, want %q", got, want)
		}
		return nil
	})
	successor := sandboxesOf(t, e, second)
	if len(successor) != 1 {
		t.Fatalf("the new version has the sandboxes %v", successor)
	}
	env.Eventually(t, "both sandboxes' events", func() error {
		stopped := events.index(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, old)
		created := events.index(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, successor[0].Id)
		switch {
		case stopped < 0 || created < 0:
			return fmt.Errorf("old one's stop at %d, new one's creation at %d", stopped, created)
		case stopped > created:
			t.Fatalf("the new sandbox was created (event %d) before the old one had stopped (event %d)", created,
				stopped)
		}
		return nil
	})
	nothingLeft(t, func() []string { return e.LeaksOf(string(first.UID), old) })
	removed(t, e, a, "edit")
	if got := lines(log); got[len(got)-1] != "end-2" {
		t.Errorf("after the deletion the trace is %q", got)
	}
}

// backStartsAnew checks that a pod whose manifest was deleted and created again starts anew, even
// if the agent sees both at once, as with a kubelet.
func backStartsAnew(t *testing.T, _ *env.Env, a *env.Agent) {
	log := filepath.Join(t.TempDir(), "log")
	put(t, a, "back", tracer(filepath.Dir(log), "1"))
	a.WaitReady(t, "back")
	manifest := filepath.Join(a.Manifests, "back.yaml")
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(a.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	a.RemoveManifest(t, "back.yaml")
	err = os.WriteFile(manifest, text, 0o600)
	if err := errors.Join(err, syscall.Kill(a.PID(), syscall.SIGCONT)); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the pod's new start", func() error {
		want := []string{"start-1", "prestop-1", "prestopped-1", "term-1", "end-1", "start-1"}
		if got := lines(log); !slices.Equal(got, want) {
			return fmt.Errorf("the trace is %q, want %q", got, want)
		}
		return nil
	})
	a.WaitReady(t, "back")
	a.RemoveManifest(t, "back.yaml")
	a.WaitGone(t, "back")
}

// deleteKeepsGrace checks that a pod that ignores its signal has its whole grace and is then
// killed.
func deleteKeepsGrace(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "stubborn", `
terminationGracePeriodSeconds: 20
containers:
  - name: main
    image: berth.local/web:v1
    args: [trap]
  - name: gentle
    image: berth.local/web:v1
    args: [sleep]
`)
	a.WaitReady(t, "stubborn")
	p := podOf(t, a, "stubborn")
	for _, name := range []string{"main", "gentle"} {
		heeds(t, a, "stubborn", name)
	}
	a.RemoveManifest(t, "stubborn.yaml")
	// The end of the container "gentle" is shown while the other container still has its grace.
	half := waitPod(t, a, "stubborn", "half ended", func(p *corev1.Pod) error {
		if statusOf(p, "gentle").State.Terminated == nil {
			return errors.New("the gentle container has not ended")
		}
		return nil
	})
	if half.DeletionTimestamp == nil {
		t.Error("the ending pod has no deletion timestamp")
	}
	if statusOf(half, "main").State.Running == nil {
		t.Errorf("the stubborn container was not given its grace: %s", env.Describe([]corev1.Pod{*half}))
	}
	a.WaitGone(t, "stubborn")
	nothingLeft(t, func() []string { return e.LeaksOf(string(p.UID)) })
}

// heeds waits until the testapp of a container handles signals. Before that, SIGTERM does nothing
// to the first process of a container.
func heeds(t *testing.T, a *env.Agent, pod, container string) {
	t.Helper()
	env.Eventually(t, container+" to heed signals", func() error {
		for line := range strings.Lines(inside(t, a, pod, container, "/testapp", "cat", "/proc/1/status")) {
			digits, ok := strings.CutPrefix(line, "SigCgt:")
			if caught, err := strconv.ParseUint(strings.TrimSpace(digits), 16, 64); ok && err == nil &&
				caught&(1<<(syscall.SIGTERM-1)) != 0 {
				return nil
			}
		}
		return errors.New("it does not")
	})
}

// finishedStayFinished checks that pods that ended by themselves are not started again, whatever
// happens to the agent, and that they can be removed completely.
func finishedStayFinished(t *testing.T, e *env.Env, a *env.Agent) {
	const spec = `
restartPolicy: %s
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, 'echo run >> /trace/log; exit %d']
    volumeMounts:
      - {name: trace, mountPath: /trace}
volumes:
  - name: trace
    hostPath: {path: %s}
`
	jobs := map[string]struct {
		policy string
		code   int
		want   corev1.PodPhase
	}{
		"done": {"Never", 0, corev1.PodSucceeded}, "failed": {"Never", 7, corev1.PodFailed},
		"once": {"OnFailure", 0, corev1.PodSucceeded},
	}
	dirs := map[string]string{}
	for name, job := range jobs {
		dirs[name] = t.TempDir()
		put(t, a, name, fmt.Sprintf(spec, job.policy, job.code, dirs[name]))
	}
	ids := map[string]string{}
	for name, job := range jobs {
		ids[name] = statusOf(waitPod(t, a, name, "finished", phase(job.want)), "main").ContainerID
	}
	for _, again := range []func() error{a.Restart, func() error { a.Kill9(); return a.Start() }} {
		if err := again(); err != nil {
			t.Fatal(err)
		}
		a.WaitUp(t)
		put(t, a, "later", sleeper)
		a.WaitReady(t, "later") // by then the agent has synced the other pods
		for name, job := range jobs {
			p := waitPod(t, a, name, "finished still", phase(job.want))
			c := statusOf(p, "main")
			if end := c.State.Terminated; end == nil || int(end.ExitCode) != job.code || c.RestartCount != 0 ||
				c.ContainerID != ids[name] {
				t.Errorf("after the restart %s is %+v", name, c)
			}
			if got := lines(filepath.Join(dirs[name], "log")); len(got) != 1 {
				t.Errorf("%s ran %d times", name, len(got))
			}
		}
		removed(t, e, a, "later")
	}
	for name := range jobs {
		removed(t, e, a, name)
	}
}
