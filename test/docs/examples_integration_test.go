//go:build integration

package docs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/node/doctor"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// examplePods are the pods that examples are about: web, which was restarted and has a sidecar, a
// shell with a terminal, and one in another namespace.
const examplePods = `apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: web
      image: ` + images.Busybox + `
      command: [sh, -c, '[ -e /d/ran ] || { touch /d/ran; echo first; exit 1; }; while echo serving; do sleep 1; done & exec httpd -f -p 8080 -h /d']
      ports: [{name: http, containerPort: 8080}]
      volumeMounts: [{name: d, mountPath: /d}]
    - name: sidecar
      image: ` + images.Busybox + `
      command: [sh, -c, 'while echo beside; do sleep 1; done']
  volumes: [{name: d, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: shell}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: shell, image: ` + images.Busybox + `, command: [sh], stdin: true, tty: true}]
---
apiVersion: v1
kind: Pod
metadata: {name: coredns, namespace: kube-system}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: coredns, image: ` + images.Busybox + `, command: [sleep, "1000"]}]
`

// lasting are the examples that go on until they are interrupted.
var lasting = regexp.MustCompile(`^berth (agent|attach|cri serve|port-forward|run pod.yaml|\S+ (.* )?(-w|-f)( |$))`)

// reader stands in for somebody who tries the examples of the help.
type reader struct {
	env *env.Env
	// agent runs all the time. own stands for the agents that examples run themselves: no pod or
	// cgroup of theirs is agent's.
	agent, own *env.Agent
	binary     string
	work       string
	moved      *strings.Replacer
}

// TestExamplesWork runs each example of each verb's help.
func TestExamplesWork(t *testing.T) {
	e := env.Containerd(t, env.Options{})
	a, err := e.NewAgent(t.Context(),
		env.AgentOptions{
			Kubelet: "crashLoopBackOff: {maxContainerRestartPeriod: 1s}\nfeatureGates: " +
				"{KubeletCrashLoopBackOffMax: true}",
		})
	if err != nil {
		t.Fatal(err)
	}
	own, err := e.NewAgent(t.Context(), env.AgentOptions{Name: "own"})
	if err != nil {
		t.Fatal(err)
	}
	binary, err := env.Binary(t.Context(), e.Checkout)
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{env: e, agent: a, own: own, binary: binary, work: filepath.Join(a.Home, "work")}
	r.moved = strings.NewReplacer(
		"/etc/kubernetes/manifests", a.Manifests,
		"/etc/berth/config.yaml", `"$config"`,
		"0.0.0.0", "127.0.0.1",
		// Any free local port will do.
		" 8080", " :8080", " 8081:", " :", " 8082:", " :",
	)
	// the one that berth debug is shown with
	if err := e.Tag(t.Context(), images.Busybox, "docker.io/library/busybox:1.36"); err != nil {
		t.Fatal(err)
	}
	r.prepare(t)
	for _, verb := range append(verbs(t, binary), "") {
		for _, c := range examples(verb, help(t, binary, verb)) {
			t.Run(c.text, func(t *testing.T) { r.try(t, c) })
		}
	}
}

// prepare puts the pods and files in place that the examples are about.
func (r *reader) prepare(t *testing.T) {
	t.Helper()
	for _, dir := range []string{r.work, filepath.Join(r.work, "bin")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(r.binary, filepath.Join(r.work, "bin", "berth")); err != nil {
		t.Fatal(err)
	}
	web, _, _ := strings.Cut(examplePods, "---\n")
	job := "apiVersion: v1\nkind: Pod\nmetadata: {name: job}\nspec:\n  restartPolicy: Never\n  containers: [{name: " +
		"main, image: " + images.Busybox + ", command: [echo, ran]}]\n"
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: pod}\nspec:\n  terminationGracePeriodSeconds: 1\n  " +
		"containers: [{name: main, image: " + images.Busybox + ", command: [sh, -c, 'echo runs; exec sleep 1000']}]\n"
	if err := os.Mkdir(filepath.Join(r.work, "staged"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"web.yaml":        web,
		"job.yaml":        job,
		"pod.yaml":        pod,
		"staged/web.yaml": web,
	} {
		if err := os.WriteFile(filepath.Join(r.work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.agent.WriteManifest(t, "all.yaml", examplePods)
	r.start(t)
}

func (r *reader) start(t *testing.T) {
	t.Helper()
	if err := r.agent.Start(); err != nil {
		t.Fatal(err)
	}
	r.agent.WaitReady(t, "web", "shell", "coredns")
	env.Eventually(t, "the pod web to have been restarted", func() error {
		pods, err := r.agent.Pods(t.Context())
		if err != nil {
			return err
		}
		p := env.Find(pods, "web")
		if p == nil || !env.Ready(p) ||
			!slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
				return c.Name == "web" && c.RestartCount > 0
			}) {
			return errors.New("not yet")
		}
		return nil
	})
}

// script is what bash runs for an example. What has an agent or a runtime of its own, doctor and
// purge find the environment, too, whatever this machine has. Filters that are not installed are
// left out.
func (r *reader) script(c command, lasts bool) string {
	call := "command"
	if lasts {
		call = "exec" // the process is berth itself, which is interrupted
	}
	at := r.agent
	if words := c.words(); words[1] == "run" || words[1] == "agent" {
		at = r.own
	}
	return fmt.Sprintf(`config=%[1]q
berth() {
  case "$1" in
    run|agent|doctor|purge) verb=$1; shift; set -- "$verb" --config "$config" --root-dir %[2]q "$@" ;;
    cri) set -- "$@" --containerd %[5]q --listen unix://%[6]q --root-dir %[6]q-root --state-dir %[6]q-state ;;
  esac
  %[3]s berth "$@"
}
command -v jq >/dev/null || jq() { cat; }
%[4]s
`, at.Config, at.RootDir, call, r.moved.Replace(c.text), r.env.Endpoint, filepath.Join(r.agent.Home, "cri"))
}

// try runs an example as it stands.
func (r *reader) try(t *testing.T, c command) {
	lasts := lasting.MatchString(c.text)
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", r.script(c, lasts))
	cmd.Dir = r.work
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(r.work, "bin")+":"+os.Getenv("PATH"),
		"BERTH_SOCKET="+r.agent.Socket)
	switch words := c.words(); {
	case slices.Contains(words, "-it"):
		r.tryTerminal(t, cmd)
	case words[1] == "agent":
		r.tryLasting(t, cmd, "earlier run taken over")
	case words[1] == "cri":
		r.tryLasting(t, cmd, "the CRI is served on")
	case words[1] == "run" && lasts:
		r.tryLasting(t, cmd, "Started")
	case lasts:
		r.tryLasting(t, cmd, "")
	case words[1] == "drain" && slices.Contains(words, "--stop"):
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		r.agent.WaitEnded(t) // it ends the agent, too, which the examples that follow need
		r.start(t)
	case words[1] == "doctor":
		out, err := cmd.CombinedOutput()
		// the machine may deserve warnings
		if exit := (*exec.ExitError)(nil); err != nil &&
			(!errors.As(err, &exit) || exit.ExitCode() != doctor.ExitWarning) {
			t.Errorf("%v\n%s", err, out)
		}
	default:
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// tryTerminal gives an example a terminal, and leaves the shell that it opens.
func (r *reader) tryTerminal(t *testing.T, cmd *exec.Cmd) {
	term := env.OpenTerminal(t)
	if err := term.Start(cmd); err != nil {
		t.Fatal(err)
	}
	term.Type(t, "echo he''re\n")
	term.WaitFor(t, "here")
	term.Type(t, "exit\n")
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, term.Shown())
	}
}

// tryLasting waits until an example has something to show that has the text in it, and interrupts
// it.
func (r *reader) tryLasting(t *testing.T, cmd *exec.Cmd, text string) {
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "it to show something", func() error {
		if shown := out.String(); shown == "" || !strings.Contains(shown, text) {
			return fmt.Errorf("it shows %q", shown)
		}
		return nil
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 0 && code != 130 {
		t.Errorf("exit code %d\n%s", code, out.String())
	}
}

// output can be read while a process writes to it.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
