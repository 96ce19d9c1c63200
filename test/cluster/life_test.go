//go:build cluster

package cluster

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/test/env"
)

// sleeper is a pod that waits, without a token.
func sleeper(name string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: berth.local/busybox:v1
      command: [sleep, "3600"]
---
`, name)
}

// account makes the namespace's service account, which a controller does a little later than the first pod may come.
func account(t *testing.T, c *Cluster) {
	t.Helper()
	c.Eventually(t, Contains("default"), "get", "serviceaccounts", "-o", "name")
}

// requests counts what an agent has asked of the API server, by method and code.
func requests(t *testing.T, a *env.Agent) map[string]int {
	t.Helper()
	resp, err := a.Get(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out := map[string]int{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		labels, ok := strings.CutPrefix(lines.Text(), "rest_client_requests_total{")
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(labels, "} ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		key := ""
		for part := range strings.SplitSeq(labels, ",") {
			if name, v, _ := strings.Cut(part, "="); name != "host" {
				key += strings.Trim(v, `"`) + " "
			}
		}
		out[strings.TrimSpace(key)] += int(n)
	}
	return out
}

// since says what was asked between two counts, and how much of it is no renewal of the Lease.
func since(before, after map[string]int) (n int, what string) {
	for k, v := range after {
		if d := v - before[k]; d > 0 {
			what += fmt.Sprintf("%s: %d; ", k, d)
			if k != "200 PUT" {
				n += d
			}
		}
	}
	return n, what
}

const phaseAndReady = `jsonpath={.status.phase} {.status.conditions[?(@.type=="Ready")].status} {.status.observedGeneration} {.metadata.generation}`

// A pod is bound to the node, runs and is Ready in the API, and is gone after its deletion; that takes few requests.
func TestPodLife(t *testing.T) {
	c := Start(t, Options{})
	a := c.StartNode(t, env.AgentOptions{})
	c.WaitNodeReady(t)
	account(t, c)
	out := c.Kubectl(t, "get", "node", env.NodeName, "-o", "wide")
	t.Log(out)
	for _, want := range []string{env.HostIP, "containerd://", "v1.36.", "+berth"} {
		if !strings.Contains(out, want) {
			t.Errorf("kubectl get nodes does not say %q", want)
		}
	}
	if out := c.Kubectl(t, "get", "lease", "-n", "kube-node-lease", env.NodeName, "-o", "jsonpath={.spec.leaseDurationSeconds} {.metadata.ownerReferences[0].kind}"); out != "40 Node" {
		t.Errorf("its lease is %q", out)
	}

	c.Apply(t, sleeper("warm"))
	c.Eventually(t, Contains("Running True 1 1"), "get", "pod", "warm", "-o", phaseAndReady)
	before := requests(t, a)
	c.Apply(t, sleeper("one"))
	c.Eventually(t, Contains("Running True 1 1"), "get", "pod", "one", "-o", phaseAndReady)
	time.Sleep(2 * time.Second) // whatever is told late
	after := requests(t, a)
	n, what := since(before, after)
	t.Logf("a pod's start took %d requests: %s", n, what)
	if n > 6 {
		t.Errorf("a pod's start took %d requests: %s", n, what)
	}
	time.Sleep(30 * time.Second)
	if n, what := since(after, requests(t, a)); n > 1 { // the node's own status may change
		t.Errorf("two idle pods took %d requests in 30 s: %s", n, what)
	}

	before = requests(t, a)
	c.Kubectl(t, "delete", "pod", "one", "--timeout=30s")
	n, what = since(before, requests(t, a))
	t.Logf("a pod's end took %d requests: %s", n, what)
	if out := c.Kubectl(t, "get", "pods", "-o", "name"); strings.TrimSpace(out) != "pod/warm" {
		t.Errorf("pods left: %s", out)
	}
	a.WaitGone(t, "one")
}

// While the API server is away everything runs on, static pods come and go, and afterwards it hears what it missed.
func TestAPIServerAway(t *testing.T) {
	c := Start(t, Options{})
	a := c.StartNode(t, env.AgentOptions{})
	c.WaitNodeReady(t)
	account(t, c)
	c.Apply(t, sleeper("stays")+strings.Replace(sleeper("ends"), "[sleep, \"3600\"]", "[sh, -c, \"sleep 15; exit 3\"]", 1)+sleeper("deleted"))
	for _, name := range []string{"stays", "ends", "deleted"} {
		c.Eventually(t, Contains("Running True"), "get", "pod", name, "-o", phaseAndReady)
	}
	uid := c.Kubectl(t, "get", "pod", "stays", "-o", "jsonpath={.metadata.uid} {.status.containerStatuses[0].containerID}")
	if err := c.APIServer.Stop(); err != nil {
		t.Fatal(err)
	}
	a.WriteManifest(t, "talker.yaml", talker)
	a.WaitReady(t, "talker-"+env.NodeName)
	time.Sleep(20 * time.Second)
	if err := a.Restart(); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "stays", "talker-"+env.NodeName)
	a.RemoveManifest(t, "talker.yaml")
	a.WaitGone(t, "talker-"+env.NodeName)
	c.StartAPIServer(t)
	c.Eventually(t, Contains("1"), "get", "pod", "ends", "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
	if now := c.Kubectl(t, "get", "pod", "stays", "-o", "jsonpath={.metadata.uid} {.status.containerStatuses[0].containerID}"); now != uid {
		t.Errorf("it was %s and is %s", uid, now)
	}
	c.Kubectl(t, "delete", "pod", "deleted", "--timeout=30s")
	c.Kubectl(t, "delete", "node", env.NodeName)
	c.WaitNodeReady(t)
}

// A static pod is shown in the API, again when its mirror is deleted and as its newest version, also where it uses local objects; it goes with its manifest.
func TestMirrorPods(t *testing.T) {
	c := Start(t, Options{})
	a := c.StartNode(t, env.AgentOptions{})
	c.WaitNodeReady(t)
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: local}\ndata: {k: v}\n---\n" + talker +
		"      envFrom: [{configMapRef: {name: local}}]\n"
	a.WriteManifest(t, "talker.yaml", manifest)
	name := "talker-" + env.NodeName
	c.Eventually(t, Contains("Running True"), "get", "pod", name, "-o", phaseAndReady)
	shown := c.Kubectl(t, "get", "pod", name, "-o", "yaml")
	for _, want := range []string{"kubernetes.io/config.mirror:", "kubernetes.io/config.source: file", "kind: Node", "controller: true", "berth.dev/mirror-omits: spec.containers[0].envFrom"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the mirror has no %q:\n%s", want, shown)
		}
	}
	const identity = "jsonpath={.metadata.uid}"
	first := c.Kubectl(t, "get", "pod", name, "-o", identity)
	c.Kubectl(t, "delete", "pod", name, "--force", "--grace-period=0")
	c.Eventually(t, func(out string) error {
		if out == first {
			return fmt.Errorf("it is still the first mirror")
		}
		return nil
	}, "get", "pod", name, "-o", identity)
	c.Eventually(t, Contains("Running True"), "get", "pod", name, "-o", phaseAndReady)
	if n := c.Kubectl(t, "get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].restartCount}"); n != "0" {
		t.Errorf("it restarted %s times", n)
	}
	a.WriteManifest(t, "talker.yaml", strings.Replace(manifest, "echo hello", "echo again", 1))
	c.Eventually(t, Contains("echo again"), "get", "pod", name, "-o", "jsonpath={.spec.containers[0].command}")
	c.Eventually(t, Contains("Running True"), "get", "pod", name, "-o", phaseAndReady)
	a.RemoveManifest(t, "talker.yaml")
	c.Kubectl(t, "wait", "--for=delete", "pod", name, "--timeout=30s")
}
