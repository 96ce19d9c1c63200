//go:build cluster

package cluster

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/test/env"
)

// mover is a node whose API server changes.
type mover struct {
	c *Cluster
	// data is the data directory of every berth-apiserver.
	data string
	// before has a line for each pod that must stay as it is.
	before []string
	// last is the last pod of [mover.check].
	last string
}

// TestBundledMoves moves a node between berth-apiserver and kube-apiserver with the same data, by
// the etcd that both use and by a snapshot of it. kube-controller-manager and kube-scheduler work
// with either. No pod of the node restarts, also not when a snapshot is restored under it.
func TestBundledMoves(t *testing.T) {
	c := newBundled(t, "--workloads", "--etcd-servers", etcdClient)
	m := &mover{c: c, data: filepath.Dir(c.Admin)}
	bundled := c.APIServer
	c.Etcd = c.program("etcd", c.etcdFlags()...)
	if err := c.Etcd.Start(); err != nil {
		t.Fatal(err)
	}
	c.startBundled(t)
	c.startBundledNode(t)
	account(t, c)
	c.Apply(t, webDeployment+"---\n"+sleeper("stays"))
	c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=180s")
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/stays", "--timeout=180s")
	m.before = m.pods(t)

	c.useBundledPKI(t)
	if err := c.makePrograms(Options{}); err != nil {
		t.Fatal(err)
	}
	kube := c.APIServer
	m.change(t, bundled, kube)
	if err := errors.Join(c.ControllerManager.Start(), c.Scheduler.Start()); err != nil {
		t.Fatal(err)
	}
	m.check(t, "with-kube-apiserver", 3)

	plain := c.program("berth-apiserver", "--data-dir", m.data, "--node-name", env.NodeName, "--workloads",
		"--etcd-servers", etcdClient, "--controllers=false", "--scheduler=false")
	m.change(t, kube, plain)
	m.check(t, "with-upstream-controllers", 4)

	if err := errors.Join(c.ControllerManager.Stop(), c.Scheduler.Stop(), plain.Stop(), c.Etcd.Stop()); err != nil {
		t.Fatal(err)
	}
	m.c.bundledCommand(t, "snapshot", "restore", m.snapshot(t))
	own := c.program("berth-apiserver", "--data-dir", m.data, "--node-name", env.NodeName, "--workloads")
	m.change(t, plain, own)
	m.check(t, "with-its-own-store", 5)

	saved := filepath.Join(c.Folder, "saved.db")
	m.c.bundledCommand(t, "snapshot", "save", saved)
	m.check(t, "later", 6)
	if err := own.Stop(); err != nil {
		t.Fatal(err)
	}
	m.c.bundledCommand(t, "snapshot", "restore", saved)
	m.change(t, own, own)
	c.Eventually(t, func(out string) error {
		if strings.Contains(out, "later") {
			return fmt.Errorf("what came after the snapshot is there:\n%s", out)
		}
		return nil
	}, "get", "pods", "-o", "name")
	m.check(t, "restored", 6)
}

// change ends one API server, if it runs, and starts another.
func (m *mover) change(t *testing.T, from, to *env.Program) {
	t.Helper()
	if err := errors.Join(from.Stop(), to.Start()); err != nil {
		t.Fatal(err)
	}
	m.c.APIServer = to
	m.c.Eventually(t, Contains("ok"), "get", "--raw", "/readyz")
	m.c.WaitNodeReady(t)
}

// check shows that the node does what this API server says, and that no pod has changed: it makes a
// pod in place of the last one, has the Deployment grow to that size, and enters a pod.
func (m *mover) check(t *testing.T, name string, replicas int) {
	t.Helper()
	m.c.Apply(t, sleeper(name))
	m.c.Kubectl(t, "scale", "deployment/web", fmt.Sprintf("--replicas=%d", replicas))
	m.c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=180s")
	m.c.Kubectl(t, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=180s")
	if m.last != "" {
		m.c.Kubectl(t, "delete", "pod", m.last, "--ignore-not-found", "--timeout=180s")
	}
	m.last = name
	if out := m.c.Kubectl(t, "exec", "stays", "--", "echo", name); strings.TrimSpace(out) != name {
		t.Errorf("kubectl exec prints %q", out)
	}
	now := strings.Join(m.pods(t), "\n")
	for _, pod := range m.before {
		if !strings.Contains(now, pod) {
			t.Errorf("%s: there is no longer the pod\n%s\nbut\n%s", name, pod, now)
		}
	}
}

// pods returns a line for each pod, which is another one after any restart.
func (m *mover) pods(t *testing.T) []string {
	t.Helper()
	out := m.c.Kubectl(t, "get", "pods", "-o", "jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} "+
		"{.status.startTime} {.status.podIP} {.status.containerStatuses[0].containerID} "+
		"{.status.containerStatuses[0].restartCount}{\"\\n\"}{end}")
	return strings.Split(strings.TrimSpace(out), "\n")
}

// snapshot makes a snapshot of the stopped etcd: its content and the checksum of that.
func (m *mover) snapshot(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(m.c.EtcdData(), "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	path := filepath.Join(m.c.Folder, "snapshot.db")
	if err := os.WriteFile(path, append(content, sum[:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
