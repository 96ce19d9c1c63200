//go:build cluster

package cluster

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bundledCommand runs another command of berth-apiserver for the server's data, and returns what it
// printed.
func (c *Cluster) bundledCommand(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.tryBundledCommand(t, args...)
	if err != nil {
		t.Fatalf("berth-apiserver %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// tryBundledCommand is bundledCommand for one that may fail. The error has what it complained of.
func (c *Cluster) tryBundledCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	args = append(args, "--data-dir", filepath.Dir(c.Admin))
	cmd := exec.CommandContext(t.Context(), c.programs["berth-apiserver"], args...)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := c.In(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, &complaints)
	}
	return out.String(), err
}

const webDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: main
          image: berth.local/busybox:v1
          command: [sh, -c, "echo started; exec sleep 3600"]
`

// TestBundledAPIServer shows that berth is the node of berth-apiserver on the same machine, with
// the kubeconfig and the serving certificate that the server made: a Deployment runs, kubectl reads
// logs and executes commands, and a kill of the server disturbs no pod.
func TestBundledAPIServer(t *testing.T) {
	c := newBundled(t, "--workloads")
	c.startBundled(t)
	c.startBundledNode(t)
	account(t, c)

	c.Apply(t, webDeployment)
	c.Eventually(t, Contains("2 2"), "get", "deployment", "web", "-o",
		"jsonpath={.status.replicas} {.status.readyReplicas}")
	c.Apply(t, sleeper("one"))
	c.Eventually(t, Contains("Running True 1 1"), "get", "pod", "one", "-o", phaseAndReady)
	for _, pod := range strings.Fields(c.Kubectl(t, "get", "pods", "-l", "app=web", "-o", "name")) {
		if out := c.Kubectl(t, "logs", pod); strings.TrimSpace(out) != "started" {
			t.Errorf("the log of %s is %q", pod, out)
		}
	}
	if out := c.Kubectl(t, "exec", "one", "--", "echo", "hello"); strings.TrimSpace(out) != "hello" {
		t.Errorf("kubectl exec prints %q", out)
	}

	const uids = "jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].containerID} " +
		"{.status.containerStatuses[0].restartCount}{\"\\n\"}{end}"
	before := c.Kubectl(t, "get", "pods", "-o", uids)
	c.APIServer.Kill9()
	c.startBundled(t)
	c.WaitNodeReady(t)
	c.Kubectl(t, "exec", "one", "--", "true")
	if after := c.Kubectl(t, "get", "pods", "-o", uids); after != before {
		t.Errorf("after a kill of the server the pods are\n%s, before\n%s", after, before)
	}

	c.Kubectl(t, "delete", "pod", "one", "--timeout=180s")
	c.Kubectl(t, "delete", "deployment", "web", "--timeout=180s")
	c.Eventually(t, func(out string) error {
		if out != "" {
			return fmt.Errorf("there are %s", out)
		}
		return nil
	}, "get", "pods", "-o", "name")
}

// TestBundledKubectl checks kubectl's verbs that need a running pod on berth-apiserver, with berth
// as its node. TestKubectl in apiserver/test has the verbs that need none.
func TestBundledKubectl(t *testing.T) {
	c := newBundled(t, "--workloads", "--enable-aggregator-routing")
	c.startBundled(t)
	c.startBundledNode(t)
	account(t, c)
	c.useBundledPKI(t)
	c.Apply(t, pods)
	for _, verb := range podVerbs {
		t.Run(verb.name, func(t *testing.T) { verb.run(t, c) })
	}
	c.Apply(t, target+"---\n"+burner)
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/target", "pod/burner", "--timeout=180s")
	t.Run("debug", func(t *testing.T) { debugPod(t, c) })
	t.Run("debug node", func(t *testing.T) { debugNode(t, c) })
	t.Run("run", func(t *testing.T) { runTyped(t, c) })
	t.Run("top", func(t *testing.T) { checkTop(t, c) })
	t.Run("rollout", func(t *testing.T) { rollOut(t, c) })
}

// rollOut rolls a Deployment of three out, scales it, changes it, and rolls it back.
func rollOut(t *testing.T, c *Cluster) {
	const image = "berth.local/busybox:v1"
	c.Kubectl(t, "create", "deployment", "rolled", "--image="+image, "--replicas=3", "--", "sleep", "3600")
	status := func() { c.Kubectl(t, "rollout", "status", "deployment/rolled", "--timeout=180s") }
	const read = "jsonpath={.status.readyReplicas} {.spec.template.spec.containers[0].env[0].value}"
	status()
	c.Eventually(t, Contains("3 "), "get", "deployment", "rolled", "-o", read)
	c.Kubectl(t, "scale", "deployment/rolled", "--replicas=2")
	c.Eventually(t, Contains("2 "), "get", "deployment", "rolled", "-o", read)
	c.Kubectl(t, "patch", "deployment", "rolled", "-p",
		`{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":0}}}}`)
	status()
	c.Kubectl(t, "set", "env", "deployment/rolled", "ROUND=two")
	status()
	c.Eventually(t, Contains("2 two"), "get", "deployment", "rolled", "-o", read)
	c.Kubectl(t, "rollout", "undo", "deployment/rolled")
	status()
	if out := c.Kubectl(t, "get", "deployment", "rolled", "-o", read); strings.Contains(out, "two") {
		t.Errorf("after it was rolled back: %q", out)
	}
	if out := c.Kubectl(t, "rollout", "history", "deployment/rolled"); strings.Count(out, "<none>") != 3 {
		t.Errorf("its revisions are\n%s", out)
	}
	c.Kubectl(t, "delete", "deployment", "rolled", "--timeout=180s")
}
