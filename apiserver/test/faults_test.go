//go:build cluster

package test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestSnapshot saves the content of a running server and restores it.
func TestSnapshot(t *testing.T) {
	s := start(t, "--scheduler=false")
	run := func(args ...string) (string, error) {
		out, err := exec.Command(program, append([]string{"snapshot", "--data-dir", s.dir}, args...)...).CombinedOutput()
		return string(out), err
	}
	s.kubectl(t, "create", "configmap", "before")
	file := filepath.Join(t.TempDir(), "snapshot.db")
	if out, err := run("save", file); err != nil {
		t.Fatalf("save: %v: %s", err, out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the snapshot: %v, %v", info, err)
	}
	s.kubectl(t, "create", "configmap", "after")
	if out, err := run("restore", file); err == nil || !strings.Contains(out, "another berth-apiserver") {
		t.Errorf("restore beside a running server: %v: %s", err, out)
	}
	s.stop(t)
	if out, err := run("save", file); err == nil || !strings.Contains(out, "start berth-apiserver first") {
		t.Errorf("save without a server: %v: %s", err, out)
	}
	if out, err := run("restore", file); err != nil || !strings.Contains(out, "the content before is in") {
		t.Fatalf("restore: %v: %s", err, out)
	}
	s.start(t)
	s.kubectl(t, "get", "configmap", "before")
	if out := s.kubectl(t, "get", "configmap", "after", "--ignore-not-found"); out != "" {
		t.Errorf("what came after the snapshot is there: %s", out)
	}
	s.kubectl(t, "create", "configmap", "later")
}

// TestLostStore removes the store of a server that has stopped. The next start must refuse an empty
// API, unless somebody makes the folder of an empty store, and a restored snapshot must be there.
func TestLostStore(t *testing.T) {
	s := start(t, "--scheduler=false")
	s.kubectl(t, "create", "configmap", "before")
	file := filepath.Join(t.TempDir(), "snapshot.db")
	snapshot := func(verb string) {
		t.Helper()
		if out, err := exec.Command(program, "snapshot", "--data-dir", s.dir, verb, file).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", verb, err, out)
		}
	}
	lose := func() {
		t.Helper()
		s.stop(t)
		if err := os.RemoveAll(s.file("etcd")); err != nil {
			t.Fatal(err)
		}
	}
	snapshot("save")
	lose()
	out, err := exec.Command(program, s.args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "snapshot restore") {
		t.Errorf("without its store it ends with %v and says %s", err, out)
	}
	snapshot("restore")
	s.start(t)
	s.kubectl(t, "get", "configmap", "before")
	lose()
	if err := os.Mkdir(s.file("etcd"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	if out := s.kubectl(t, "get", "configmap", "before", "--ignore-not-found"); out != "" {
		t.Errorf("a new store has %s", out)
	}
	if text, err := os.ReadFile(s.log); err != nil || !strings.Contains(string(text), "A new store begins") {
		t.Errorf("the log does not say that the store is new: %v", err)
	}
}

// TestWorkloads shows that a Deployment makes pods, and that its end takes them away.
func TestWorkloads(t *testing.T) {
	s := start(t, "--workloads")
	register(t, s, "worker")
	s.kubectl(t, "create", "deployment", "web", "--image", "registry.example/image:1", "--replicas", "2")
	s.eventually(t, "worker worker", "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.nodeName}")
	s.kubectl(t, "create", "job", "once", "--image", "registry.example/image:1")
	s.eventually(t, "worker", "get", "pods", "-l", "job-name=once", "-o", "jsonpath={.items[*].spec.nodeName}")
	s.kubectl(t, "delete", "deployment", "web")
	s.eventually(t, "", "get", "replicasets", "-o", "name")
}

// TestSettingsThatCannotBe shows that a server which cannot start says why and ends.
func TestSettingsThatCannotBe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data") // others must not be able to enter it
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	short := shortFolder(t)
	for name, c := range map[string]struct {
		flags []string
		want  string
	}{
		"port taken":     {[]string{"--data-dir", short, "--secure-port", port}, "port " + port + ": end it"},
		"unknown flag":   {[]string{"--no-such-flag"}, "no-such-flag"},
		"long path":      {[]string{"--data-dir", filepath.Join(dir, strings.Repeat("x", 100))}, "shorter --data-dir"},
		"service range":  {[]string{"--data-dir", dir, "--service-cluster-ip-range", "wrong"}, "--service-cluster-ip-range"},
		"authority gone": {[]string{"--data-dir", dir, "--secure-port", strconv.Itoa(freePort(t))}, "restore both"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "authority gone" {
				if err := os.MkdirAll(filepath.Join(dir, "pki"), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "pki", "ca.crt"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.Command(program, c.flags...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.want) {
				t.Errorf("it ends with %v and says %s", err, out)
			}
		})
	}
}

// TestStoppedDuringStart asks the program to end while it starts, at several points. It must end
// well, and the next start must find what it needs.
func TestStoppedDuringStart(t *testing.T) {
	exists := func(name string) func(*server) bool {
		return func(s *server) bool { _, err := os.Stat(s.file(name)); return err == nil }
	}
	for name, reached := range map[string]func(*server) bool{
		"keys": exists("pki/ca.crt"), "store": exists("etcd.sock"), "listening": func(s *server) bool {
			c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "https://"))
			if err == nil {
				c.Close()
			}
			return err == nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := prepare(t, filepath.Join(shortFolder(t), "data"))
			s.launch(t)
			s.await(t, "the start has come to "+name, func() error {
				if !reached(s) {
					return errors.New("not yet")
				}
				return nil
			})
			s.stop(t)
			// a request that the end cut off is logged with the words panicked and panic-reason
			said := s.tail()
			for _, crash := range []string{"panic: ", "panic'd", "a panic", "panicked: true", "goroutine "} {
				if strings.Contains(said, crash) {
					t.Errorf("it says %q in\n%s", crash, said)
				}
			}
			s.start(t)
		})
	}
}
