//go:build cluster

package cluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/test/env"
)

// pods are the pods for kubectl's verbs.
const pods = `apiVersion: v1
kind: Pod
metadata: {name: shell, labels: {app: shell}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: berth.local/busybox:v1
      command: [sh, -c, 'echo begun; mkdir /www; echo page >/www/index.html; exec httpd -f -p 8080 -h /www']
---
apiVersion: v1
kind: Pod
metadata: {name: counter}
spec:
  restartPolicy: Never
  containers: [{name: main, image: berth.local/busybox:v1, command: [sh, -c,
    'for i in 1 2 3 4 5; do echo line $i; sleep 1; done']}]
---
apiVersion: v1
kind: Pod
metadata: {name: listener}
spec:
  restartPolicy: Never
  containers: [{name: main, image: berth.local/busybox:v1, stdin: true, stdinOnce: true,
    command: [sh, -c, 'read x; echo heard $x']}]
`

// TestKubectl checks kubectl's verbs on berth's pods.
func TestKubectl(t *testing.T) {
	c := Start(t, Options{})
	c.StartNode(t, env.AgentOptions{})
	c.WaitNodeReady(t)
	c.Apply(t, pods)
	for _, verb := range podVerbs {
		t.Run(verb.name, func(t *testing.T) { verb.run(t, c) })
	}
}

// podVerbs are kubectl's verbs on the pods above, in the order in which they can be used.
var podVerbs = []struct {
	name string
	run  func(t *testing.T, c *Cluster)
}{
	{"wait", func(t *testing.T, c *Cluster) {
		c.Kubectl(t, "wait", "--for=condition=Ready", "pod/shell", "pod/listener", "--timeout=180s")
	}},
	{"logs", logs},
	{"get", get},
	{"describe", describe},
	{"exec", execute},
	{"exec-it", terminal},
	{"attach", attach},
	{"cp", copyFiles},
	{"port-forward", portForward},
	{"delete", deletion},
}

func get(t *testing.T, c *Cluster) {
	out := c.Kubectl(t, "get", "pods", "-o", "wide")
	if !regexp.MustCompile(`(?m)^shell +1/1 +Running +0 +[\dms]+ +` +
		regexp.QuoteMeta(strings.TrimSuffix(c.PodCIDR.Addr().String(), "0")) + `\d+ +` + env.NodeName +
		` `).MatchString(out) {
		t.Errorf("the pods are\n%s", out)
	}
	out = c.Kubectl(t, "get", "nodes", "-o", "wide")
	if !regexp.MustCompile(`(?m)^node +Ready +<none> +[\dms]+ +v1\.36\.\S+ +` + regexp.QuoteMeta(env.HostIP) +
		` .*containerd://`).MatchString(out) {
		t.Errorf("the nodes are\n%s", out)
	}
}

func describe(t *testing.T, c *Cluster) {
	c.Eventually(t,
		Contains("Scheduled", "Pulled", "Created", "Started", "kubelet", "Running", "PodReadyToStartContainers",
			"Container ID:  containerd://", "sha256:", "kube-api-access"), "describe", "pod", "shell")
	c.Eventually(t, Contains("KubeletReady", "MemoryPressure", "Allocatable:", "cpu", "default", "shell"), "describe",
		"node", env.NodeName)
}

// logs follows a log to its end.
func logs(t *testing.T, c *Cluster) {
	c.Eventually(t, Contains("line 1"), "logs", "counter")
	if _, errOut, err := c.TryKubectl(t.Context(), "", "logs", "counter", "--previous"); err == nil ||
		errOut != "Error from server (BadRequest): previous terminated container \"main\" in pod \"counter\" not "+
			"found\n" {
		t.Errorf("a log that is not there: %v: %q", err, errOut)
	}
	out := c.Kubectl(t, "logs", "-f", "counter")
	if want := "line 1\nline 2\nline 3\nline 4\nline 5\n"; out != want {
		t.Errorf("the log is %q, want %q", out, want)
	}
	if out := c.Kubectl(t, "logs", "counter", "--tail=2", "--timestamps"); strings.Count(out, "\n") != 2 ||
		!strings.Contains(out, "Z line 5") {
		t.Errorf("the last two lines are %q", out)
	}
}

func execute(t *testing.T, c *Cluster) {
	if out := c.Kubectl(t, "exec", "shell", "--", "echo", "a", "b"); out != "a b\n" {
		t.Errorf("it says %q", out)
	}
	out, errOut, err := c.TryKubectl(t.Context(), "from here", "exec", "-i", "shell", "--", "sh", "-c",
		"cat; echo aside >&2; exit 42")
	if out != "from here" || !strings.Contains(errOut, "aside\n") || ExitCode(err) != 42 {
		t.Errorf("%q %q %v", out, errOut, err)
	}
	if _, errOut, err := c.TryKubectl(t.Context(), "", "exec", "shell", "-c", "nope", "--",
		"true"); ExitCode(err) != 1 || !strings.Contains(errOut, "nope") {
		t.Errorf("a container that is not there: %q %v", errOut, err)
	}
}

// terminal types into a shell, and changes the window's size.
func terminal(t *testing.T, c *Cluster) {
	term := env.OpenTerminal(t)
	cmd := c.KubectlCommand(t.Context(), "exec", "-it", "shell", "--", "sh")
	if err := c.In(func() error { return term.Start(cmd) }); err != nil {
		t.Fatal(err)
	}
	term.Type(t, "echo ok-$((40+2))\n")
	term.WaitFor(t, "ok-42")
	measures(t, term, "24 80")
	term.Resize(t, 100, 30)
	measures(t, term, "30 100")
	term.Type(t, "exit 3\n")
	if err := cmd.Wait(); ExitCode(err) != 3 {
		t.Errorf("it ended with %v", err)
	}
}

// measures asks a shell for the terminal's size until it is the expected one. The shell may have
// started before it got the size.
func measures(t *testing.T, term *env.Terminal, size string) {
	t.Helper()
	env.Eventually(t, "the size "+size, func() error {
		term.Type(t, "stty size\n")
		if !strings.Contains(term.Shown(), size) {
			return fmt.Errorf("it shows %q", term.Shown())
		}
		return nil
	})
}

// attach sends input to a container's own process.
func attach(t *testing.T, c *Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, errOut, err := c.TryKubectl(ctx, "you\n", "attach", "-i", "listener")
	if err != nil || !strings.Contains(out, "heard you") {
		t.Errorf("%q %q %v", out, errOut, err)
	}
}

func copyFiles(t *testing.T, c *Cluster) {
	dir := t.TempDir()
	data := strings.Repeat("0123456789abcdef", 1<<16)
	if err := os.WriteFile(filepath.Join(dir, "out"), []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "cp", filepath.Join(dir, "out"), "shell:/tmp/there")
	c.Kubectl(t, "cp", "shell:/tmp/there", filepath.Join(dir, "back"))
	if back, err := os.ReadFile(filepath.Join(dir, "back")); err != nil || string(back) != data {
		t.Errorf("%d bytes came back of %d (%v)", len(back), len(data), err)
	}
}

func portForward(t *testing.T, c *Cluster) {
	ctx, cancel := context.WithCancel(t.Context())
	cmd := c.KubectlCommand(ctx, "port-forward", "pod/shell", ":8080")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.In(cmd.Start); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	m := regexp.MustCompile(`from (127\.0\.0\.1:\d+) -> 8080`).FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("it says %q (%v)", line, err)
	}
	for range 3 {
		if page, err := c.get(t.Context(), "http://"+m[1]+"/"); err != nil || page != "page\n" {
			t.Errorf("%q %v", page, err)
		}
	}
	cancel()
	_, _ = io.Copy(io.Discard, lines)
	_ = cmd.Wait()
}

func deletion(t *testing.T, c *Cluster) {
	c.Kubectl(t, "delete", "pod", "shell", "--timeout=180s")
	if _, errOut, err := c.TryKubectl(t.Context(), "", "get", "pod", "shell"); ExitCode(err) != 1 ||
		!strings.Contains(errOut, "not found") {
		t.Errorf("%v %s", err, errOut)
	}
	c.Kubectl(t, "delete", "pod", "--all", "--timeout=180s")
	env.Eventually(t, "nothing to be left on the node", func() error {
		if leaks := c.Leaks(); len(leaks) > 0 {
			return fmt.Errorf("left: %s", strings.Join(leaks, "\n"))
		}
		return nil
	})
}
