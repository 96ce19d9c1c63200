//go:build cluster

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

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

// account waits for the namespace's service account, which a controller may make a little later
// than the first pod comes.
func account(t *testing.T, c *Cluster) {
	t.Helper()
	c.Eventually(t, Contains("default"), "get", "serviceaccounts", "-o", "name")
}

// requests counts what the node has asked of the API server for its pods, by verb and resource. It
// leaves out the node's own object and its Lease, which depend on the clock.
func requests(t *testing.T, c *Cluster) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, r := range c.nodeRequests(t) {
		if !slices.Contains([]string{"", "leases", "nodes", "csinodes"}, r.ObjectRef.Resource) {
			out[strings.TrimSuffix(r.Verb+" "+r.ObjectRef.Resource+"/"+r.ObjectRef.Subresource, "/")]++
		}
	}
	return out
}

// settled counts the same when nothing more has been asked for a while. Events are written a little
// later than what they report.
func settled(t *testing.T, c *Cluster) map[string]int {
	t.Helper()
	last := requests(t, c)
	for began := time.Now(); time.Since(began) < 5*time.Second; time.Sleep(200 * time.Millisecond) {
		if now := requests(t, c); !maps.Equal(now, last) {
			last, began = now, time.Now()
		}
	}
	return last
}

// since returns what was asked between two counts.
func since(before, after map[string]int) (n int, what string) {
	for k, v := range after {
		if d := v - before[k]; d > 0 {
			what += fmt.Sprintf("%s: %d; ", k, d)
			n += d
		}
	}
	return n, what
}

const phaseAndReady = `jsonpath={.status.phase} {.status.conditions[?(@.type=="Ready")].status} ` +
	`{.status.observedGeneration} {.metadata.generation}`

// TestPodLife checks that a pod is bound to the node, runs and is Ready in the API, and is gone
// after its deletion, and that this needs few requests.
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
	if out := c.Kubectl(t, "get", "lease", "-n", "kube-node-lease", env.NodeName, "-o",
		"jsonpath={.spec.leaseDurationSeconds} {.metadata.ownerReferences[0].kind}"); out != "40 Node" {
		t.Errorf("its lease is %q", out)
	}

	c.Apply(t, sleeper("warm"))
	c.Eventually(t, Contains("Running True 1 1"), "get", "pod", "warm", "-o", phaseAndReady)
	env.Eventually(t, "the node to look once for ResourceSlices of drivers that are gone", func() error {
		if now := requests(t, c); now["deletecollection resourceslices"] != 1 {
			return fmt.Errorf("the requests are %v", now)
		}
		return nil
	})
	before := settled(t, c)
	c.Apply(t, sleeper("one"))
	c.Eventually(t, Contains("Running True 1 1"), "get", "pod", "one", "-o", phaseAndReady)
	after := settled(t, c)
	n, what := since(before, after)
	t.Logf("a pod's start took %d requests: %s", n, what)
	// three events, and as many statuses on a slow machine: the pod waits, has its sandbox, is
	// ready
	if n > 6 {
		t.Errorf("a pod's start took %d requests: %s", n, what)
	}
	time.Sleep(30 * time.Second)
	if n, what := since(after, requests(t, c)); n > 0 {
		t.Errorf("two idle pods took %d requests in 30 s: %s", n, what)
	}

	before = requests(t, c)
	c.Kubectl(t, "delete", "pod", "one", "--timeout=180s")
	n, what = since(before, requests(t, c))
	t.Logf("a pod's end took %d requests: %s", n, what)
	if out := c.Kubectl(t, "get", "pods", "-o", "name"); strings.TrimSpace(out) != "pod/warm" {
		t.Errorf("pods left: %s", out)
	}
	a.WaitGone(t, "one")
}

// TestAPIServerAway checks that while the API server is away everything runs on and static pods
// come and go. Afterwards the node reports what the API server missed.
func TestAPIServerAway(t *testing.T) {
	c := Start(t, Options{})
	a := c.StartNode(t, env.AgentOptions{})
	c.WaitNodeReady(t)
	account(t, c)
	// The container ends once, when the test asks for it, while the API server is away.
	const ends = "[sh, -c, \"[ -e /d/end ] && exec sleep 3600; until [ -e /d/end ]; do sleep 0.1; done; exit 3\"]\n" +
		"      volumeMounts: [{name: d, mountPath: /d}]\n  volumes: [{name: d, emptyDir: {}}]"
	c.Apply(t, sleeper("stays")+strings.Replace(sleeper("ends"), "[sleep, \"3600\"]", ends, 1)+sleeper("deleted"))
	for _, name := range []string{"stays", "ends", "deleted"} {
		c.Eventually(t, Contains("Running True"), "get", "pod", name, "-o", phaseAndReady)
	}
	uid := c.Kubectl(t, "get", "pod", "stays", "-o",
		"jsonpath={.metadata.uid} {.status.containerStatuses[0].containerID}")
	if err := c.APIServer.Stop(); err != nil {
		t.Fatal(err)
	}
	a.WriteManifest(t, "talker.yaml", talker)
	a.WaitReady(t, "talker-"+env.NodeName)
	if out, errOut, code := a.CLI("exec", "ends", "--", "touch", "/d/end"); code != 0 {
		t.Fatalf("have a container end: %d %s%s", code, out, errOut)
	}
	a.WaitPods(t, "it to run again", func(pods []v1.Pod) bool {
		p := env.Find(pods, "ends")
		return p != nil && env.Ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	if err := a.Restart(); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "stays", "talker-"+env.NodeName)
	a.RemoveManifest(t, "talker.yaml")
	a.WaitGone(t, "talker-"+env.NodeName)
	c.StartAPIServer(t)
	c.Eventually(t, Contains("1"), "get", "pod", "ends", "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
	if now := c.Kubectl(t, "get", "pod", "stays", "-o",
		"jsonpath={.metadata.uid} {.status.containerStatuses[0].containerID}"); now != uid {
		t.Errorf("it was %s and is %s", uid, now)
	}
	c.Kubectl(t, "delete", "pod", "deleted", "--timeout=180s")
	c.Kubectl(t, "delete", "node", env.NodeName)
	c.WaitNodeReady(t)
}

// TestMirrorPods checks that the API shows a static pod, shows it again when its mirror is deleted,
// and shows its newest version, also if it uses local objects. The mirror is removed with the
// manifest.
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
	for _, want := range []string{
		"kubernetes.io/config.mirror:", "kubernetes.io/config.source: file", "kind: Node", "controller: true",
		"berth.dev/mirror-omits: spec.containers[0].envFrom",
	} {
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
	c.Kubectl(t, "wait", "--for=delete", "pod", name, "--timeout=180s")
}
