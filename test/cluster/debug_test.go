//go:build cluster

package cluster

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/test/env"
)

// target is a pod whose processes and network are looked at.
const target = `apiVersion: v1
kind: Pod
metadata: {name: target}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: berth.local/busybox:v1, command: [httpd, -f, -p, "8080", -h, /]}]
`

// typeInto starts kubectl on a terminal, with a command whose shell reads from the terminal.
func (c *Cluster) typeInto(t *testing.T, args ...string) (term *env.Terminal, wait func() error) {
	t.Helper()
	term = env.OpenTerminal(t)
	cmd := c.KubectlCommand(t.Context(), args...)
	if err := c.In(func() error { return term.Start(cmd) }); err != nil {
		t.Fatal(err)
	}
	return term, cmd.Wait
}

// prompt waits for the shell's prompt. The shell may have shown its first one before kubectl was
// attached, so kubectl asks to press enter.
func prompt(t *testing.T, term *env.Terminal) {
	t.Helper()
	term.WaitFor(t, "try pressing enter")
	term.Type(t, "\n")
	term.WaitFor(t, "# ")
}

// TestDebug checks kubectl debug, on a pod and on the node, and kubectl run -it, each on a
// terminal.
func TestDebug(t *testing.T) {
	c := Start(t, Options{})
	c.StartNode(t, env.AgentOptions{})
	c.WaitNodeReady(t)
	account(t, c)
	c.Apply(t, target)
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/target", "--timeout=180s")

	t.Run("pod", func(t *testing.T) { debugPod(t, c) })
	t.Run("node", func(t *testing.T) { debugNode(t, c) })
	t.Run("run", func(t *testing.T) { runTyped(t, c) })
}

// debugPod debugs a container of a pod by another one that sees its processes and its network.
func debugPod(t *testing.T, c *Cluster) {
	t.Helper()
	term, wait := c.typeInto(t, "debug", "target", "-it", "--image=berth.local/busybox:v1", "--target=main", "-c",
		"debugger", "--", "sh")
	prompt(t, term)
	term.Type(t,
		"cat /proc/1/cmdline | tr '\\0' ' '; wget -q -O - http://127.0.0.1:8080/etc/passwd | head -n 1; "+
			"echo d$((40+2))\n")
	term.WaitFor(t, "d42")
	for _, want := range []string{"httpd -f -p 8080", "root:"} {
		if out := term.Shown(); !strings.Contains(out, want) {
			t.Errorf("%q is not in what it shows:\n%s", want, out)
		}
	}
	running := c.Kubectl(t, "get", "pod", "target", "-o",
		"jsonpath={.status.ephemeralContainerStatuses[0].name} "+
			"{.status.ephemeralContainerStatuses[0].state.running.startedAt}")
	if !strings.HasPrefix(running, "debugger 20") {
		t.Errorf("its status is %q", running)
	}
	term.Type(t, "exit 3\n")
	if err := wait(); err != nil {
		t.Errorf("kubectl ended with %v", err)
	}
	c.Eventually(t, Contains("3 Error"), "get", "pod", "target", "-o",
		"jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.exitCode} "+
			"{.status.ephemeralContainerStatuses[0].state.terminated.reason}")
	if out := c.Kubectl(t, "get", "pod", "target", "-o", phaseAndReady); !strings.HasPrefix(out, "Running True ") {
		t.Errorf("the pod is %q", out)
	}
}

// debugNode debugs the node from a pod with the host's files, processes and network.
func debugNode(t *testing.T, c *Cluster) {
	t.Helper()
	term, wait := c.typeInto(t, "debug", "node/"+env.NodeName, "-it", "--image=berth.local/busybox:v1", "--", "sh")
	prompt(t, term)
	term.Type(t, "ls /host"+filepath.Dir(c.Admin)+"; ip -o addr; cat /host/proc/1/comm /proc/1/comm; echo d$((40+2))\n")
	term.WaitFor(t, "d42")
	for _, want := range []string{filepath.Base(c.Admin), env.HostIP} {
		if out := term.Shown(); !strings.Contains(out, want) {
			t.Errorf("%q is not in what it shows:\n%s", want, out)
		}
	}
	term.Type(t, "exit\n")
	if err := wait(); err != nil {
		t.Errorf("kubectl ended with %v", err)
	}
	c.Eventually(t, Contains("Succeeded"), "get", "pods", "-l", "app.kubernetes.io/managed-by=kubectl-debug", "-o",
		"jsonpath={.items[*].status.phase}")
}

// runTyped runs a pod for a shell on a terminal.
func runTyped(t *testing.T, c *Cluster) {
	t.Helper()
	term, wait := c.typeInto(t, "run", "typed", "-it", "--rm", "--restart=Never", "--image=berth.local/busybox:v1",
		"--", "sh")
	prompt(t, term)
	measures(t, term, "24 80")
	term.Type(t, "exit 5\n")
	if err := wait(); ExitCode(err) != 5 {
		t.Errorf("kubectl ended with %v, the command with 5", err)
	}
	c.Kubectl(t, "wait", "--for=delete", "pod/typed", "--timeout=180s")
}

// budgeted is a Deployment of which one pod must run.
const budgeted = `apiVersion: apps/v1
kind: Deployment
metadata: {name: kept}
spec:
  replicas: 2
  selector: {matchLabels: {app: kept}}
  template:
    metadata: {labels: {app: kept}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: berth.local/busybox:v1, command: [sleep, "3600"]}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: kept}
spec: {minAvailable: 1, selector: {matchLabels: {app: kept}}}
`

// TestDrainWithBudget checks that evictions respect a PodDisruptionBudget, whose numbers come from
// the pods' conditions. A drain stops before the last pod, and goes on when it may.
func TestDrainWithBudget(t *testing.T) {
	c := Start(t, Options{})
	c.StartNode(t, env.AgentOptions{})
	c.WaitNodeReady(t)
	c.Apply(t, budgeted)
	c.Kubectl(t, "rollout", "status", "deployment/kept", "--timeout=180s")
	c.Eventually(t, Contains("1"), "get", "pdb", "kept", "-o", "jsonpath={.status.disruptionsAllowed}")

	_, errOut, err := c.TryKubectl(t.Context(), "", "drain", env.NodeName, "--timeout=15s")
	if ExitCode(err) != 1 || !strings.Contains(errOut, "would violate the pod's disruption budget") {
		t.Errorf("a drain against the budget: %v\n%s", err, errOut)
	}
	const running = "--field-selector=spec.nodeName=" + env.NodeName + ",status.phase=Running"
	if out := c.Kubectl(t, "get", "pods", running, "-o", "name"); strings.Count(out, "pod/") != 1 {
		t.Errorf("left to run:\n%s", out)
	}
	c.Kubectl(t, "delete", "pdb", "kept")
	c.Kubectl(t, "drain", env.NodeName, "--timeout=180s")
	if out := c.Kubectl(t, "get", "pods", running, "-o", "name"); out != "" {
		t.Errorf("left on the drained node:\n%s", out)
	}
	c.Kubectl(t, "uncordon", env.NodeName)
	c.Kubectl(t, "rollout", "status", "deployment/kept", "--timeout=180s")
}
