//go:build cluster

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// stopAPI stops the API server and etcd.
func (c *Cluster) stopAPI(t *testing.T) {
	t.Helper()
	if err := errors.Join(c.APIServer.Stop(), c.Etcd.Stop()); err != nil {
		t.Fatal(err)
	}
}

// startAPI starts etcd and the API server again, and restarts the parts whose caches are from the
// old etcd.
func (c *Cluster) startAPI(t *testing.T) {
	t.Helper()
	if err := c.Etcd.Start(); err != nil {
		t.Fatal(err)
	}
	c.StartAPIServer(t)
	for _, p := range []*env.Program{c.ControllerManager, c.Scheduler} {
		if err := errors.Join(p.Stop(), p.Start()); err != nil {
			t.Fatal(err)
		}
	}
}

// ending is a pod that ends when the test asks for it.
const ending = `
{apiVersion: v1, kind: Pod, metadata: {name: ends}, spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1,
  containers: [
  {name: main, image: "berth.local/busybox:v1", command: [sh, -c, "until [ -e /end ]; do sleep 0.2; done"]}]}}
---
`

// TestEtcdRestored restores etcd to an older revision, and the node follows its state. Pods that
// are in it run on or come back, and pods that are not in it end. The node gets later changes,
// although their revisions belonged to other changes before.
func TestEtcdRestored(t *testing.T) {
	c := Start(t, Options{})
	a := c.StartNode(t, env.AgentOptions{})
	c.WaitNodeReady(t)
	account(t, c)
	w := c.Witness(t)
	c.Apply(t, sleeper("stays")+sleeper("changed")+sleeper("deleted")+ending)
	a.WriteManifest(t, "static.yaml", staticSleeper("static"))
	w.shows(t, "pods", func(pods map[string]*v1.Pod) error { return allReady(pods, 5) })
	before := identities(t, w)
	backup := filepath.Join(c.Folder, "backup")
	c.stopAPI(t)
	if err := os.CopyFS(backup, os.DirFS(c.EtcdData())); err != nil {
		t.Fatal(err)
	}
	c.startAPI(t)

	c.Kubectl(t, "delete", "pod", "deleted", "--timeout=180s")
	c.Kubectl(t, "annotate", "pod", "changed", "since=later")
	c.Kubectl(t, "exec", "ends", "--", "touch", "/end")
	c.Eventually(t, Contains("Succeeded"), "get", "pod", "ends", "-o", "jsonpath={.status.phase}")
	c.Apply(t, sleeper("later"))
	a.WriteManifest(t, "static.yaml", strings.Replace(staticSleeper("static"), "3600", "3601", 1))
	w.shows(t, "later changes", func(pods map[string]*v1.Pod) error {
		if m := pods[mirrorOf("static")]; m == nil || m.Spec.Containers[0].Command[1] != "3601" {
			return errors.New("the static pod is the old one")
		}
		return allReady(pods, 5)
	})
	ended := c.Kubectl(t, "get", "pod", "ends", "-o", "jsonpath={.status.containerStatuses}")
	c.stopAPI(t)
	if err := os.RemoveAll(c.EtcdData()); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(c.EtcdData(), os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	c.startAPI(t)

	w.shows(t, "what was restored", func(pods map[string]*v1.Pod) error {
		if m := pods[mirrorOf("static")]; m == nil || m.Spec.Containers[0].Command[1] != "3601" {
			return errors.New("the static pod is the old one")
		}
		if d := pods["deleted"]; d == nil || Identity(d) == before["deleted"] {
			return errors.New("the pod that was deleted runs no new container")
		}
		// in its backup the API server has the pod as running
		if p := pods["ends"]; p == nil || p.Status.Phase != v1.PodSucceeded {
			return errors.New("the pod that has ended has not")
		}
		return allReady(pods, 5)
	})
	if now := c.Kubectl(t, "get", "pod", "ends", "-o", "jsonpath={.status.containerStatuses}"); now != ended {
		t.Errorf("what has ended was %s and is %s", ended, now)
	}
	a.WaitGone(t, "later")
	now := identities(t, w)
	for _, name := range []string{"stays", "changed"} {
		if now[name] != before[name] {
			t.Errorf("%s was %s and is %s", name, before[name], now[name])
		}
	}
	c.WaitNodeReady(t)
	c.Apply(t, sleeper("newest"))
	w.shows(t, "a new pod", func(pods map[string]*v1.Pod) error { return allReady(pods, 6) })
	c.Kubectl(t, "delete", "pod", "changed", "newest", "--timeout=180s")
}

// TestNodeDeleted checks that a node's deleted object is made again, and that no pod is affected.
func TestNodeDeleted(t *testing.T) {
	c := Start(t, Options{})
	a := c.StartNode(t, env.AgentOptions{})
	c.WaitNodeReady(t)
	account(t, c)
	w := c.Witness(t)
	c.Apply(t, sleeper("bound"))
	a.WriteManifest(t, "static.yaml", staticSleeper("static"))
	w.shows(t, "pods", func(pods map[string]*v1.Pod) error { return allReady(pods, 2) })
	before, first := identities(t, w), c.Kubectl(t, "get", "node", env.NodeName, "-o", "jsonpath={.metadata.uid}")

	c.Kubectl(t, "delete", "node", env.NodeName)
	c.WaitNodeReady(t)
	second := c.Kubectl(t, "get", "node", env.NodeName, "-o", "jsonpath={.metadata.uid}")
	if first == second {
		t.Fatalf("the node is still %s", first)
	}
	c.Eventually(t, Contains(second), "get", "pod", mirrorOf("static"), "-o",
		// the garbage collector deleted the first mirror
		"jsonpath={.metadata.ownerReferences[0].uid}")
	c.Eventually(t, Contains(second), "get", "lease", "-n", "kube-node-lease", env.NodeName, "-o",
		"jsonpath={.metadata.ownerReferences[0].uid}")
	w.shows(t, "pods", func(pods map[string]*v1.Pod) error { return allReady(pods, 2) })
	// without the mirror's own uid
	container := func(identity string) string { _, of, _ := strings.Cut(identity, " "); return of }
	for name, now := range identities(t, w) {
		if container(now) != container(before[name]) {
			t.Errorf("%s was %s and is %s", name, before[name], now)
		}
	}
	c.Apply(t, sleeper("later"))
	w.shows(t, "a later pod", func(pods map[string]*v1.Pod) error {
		if pods["bound"] == nil || string(pods["bound"].UID) != strings.Fields(before["bound"])[0] {
			return fmt.Errorf("the pod of before is not there")
		}
		return allReady(pods, 3)
	})
}
