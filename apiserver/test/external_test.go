//go:build cluster

package test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// member is an etcd of a cluster of them.
type member struct {
	name, client, peer string
	args               []string
	cmd                *exec.Cmd
}

// start starts the member, for the first time or again.
func (m *member) start(t testing.TB) {
	t.Helper()
	m.cmd = exec.Command(etcdProgram(t), m.args...)
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// kill ends the member as a power cut does, if it runs.
func (m *member) kill() {
	if m.cmd != nil && m.cmd.ProcessState == nil {
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait()
	}
}

// healthy returns an error unless the member is one of a cluster that has a leader.
func (m *member) healthy() error {
	answer, err := http.Get(m.client + "/health")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the health of %s is %s", m.name, answer.Status)
	}
	return nil
}

// etcdProgram returns the path of etcd: what "scripts/deps cluster" fetched, or that of the host.
func etcdProgram(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs("../../.cache/bin/etcd")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if path, err = exec.LookPath("etcd"); err != nil {
		t.Fatalf("find etcd (run \"scripts/deps cluster\"): %v", err)
	}
	return path
}

// members starts an etcd of three members, which ends with the test.
func members(t *testing.T) []*member {
	t.Helper()
	dir := shortFolder(t)
	all := make([]*member, 3)
	var cluster []string
	for i := range all {
		address := func() string { return fmt.Sprintf("http://127.0.0.1:%d", freePort(t)) }
		all[i] = &member{name: fmt.Sprintf("m%d", i), client: address(), peer: address()}
		cluster = append(cluster, all[i].name+"="+all[i].peer)
	}
	for _, m := range all {
		m.args = []string{
			"--name", m.name, "--data-dir", filepath.Join(dir, m.name), "--logger", "zap", "--log-level", "error",
			"--listen-client-urls", m.client, "--advertise-client-urls", m.client, "--listen-peer-urls", m.peer,
			"--initial-advertise-peer-urls", m.peer, "--initial-cluster", strings.Join(cluster, ","),
			// On a busy machine or disk a leader needs more than etcd's own 100 ms and 1 s.
			"--heartbeat-interval", "300", "--election-timeout", "3000",
		}
		t.Cleanup(m.kill)
		m.start(t)
	}
	return all
}

// TestExternalStore shows that a server keeps its content in an etcd of three members and makes no
// store of its own; that it goes on when any one of the members is killed; and that nothing that it
// acknowledged is lost.
func TestExternalStore(t *testing.T) {
	all := members(t)
	var addresses []string
	for _, m := range all {
		addresses = append(addresses, m.client)
	}
	s := prepare(t, shortFolder(t)+"/data", "--scheduler=false", "--etcd-servers", strings.Join(addresses, ","))
	s.start(t)
	objects := s.client(t).CoreV1().ConfigMaps("default")
	var made []string
	write := func() error {
		name := fmt.Sprintf("c%d", len(made))
		_, err := objects.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) { // the answer to a write may have been lost with the member
			made = append(made, name)
			return nil
		}
		return err
	}
	for _, m := range all { // one of them leads
		m.kill()
		for range 5 {
			s.await(t, "two members take a write", write)
		}
		m.start(t)
		for _, m := range all {
			s.await(t, "the member is back", m.healthy)
		}
	}
	s.kill()
	s.start(t)
	for _, name := range made {
		if _, err := objects.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(s.file("etcd")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has a store of its own: %v", err)
	}
}
