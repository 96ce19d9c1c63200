//go:build integration

package env

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// TestOwnNetwork checks that an environment with its own network shows nothing outside, and leaves
// nothing there.
func TestOwnNetwork(t *testing.T) {
	e := Containerd(t, Options{OwnNetwork: true})
	if leaks := e.Leaks(); len(leaks) > 0 {
		t.Fatalf("leaks before the first pod:\n%s", strings.Join(leaks, "\n"))
	}
	id := startPod(t, e, "one")
	if _, err := netlink.LinkByName(e.Bridge); err == nil {
		t.Errorf("the bridge %s is outside", e.Bridge)
	}
	if leaks := strings.Join(e.Leaks(), "\n"); !strings.Contains(leaks, "interface ") {
		t.Errorf("no interface of the pod in\n%s", leaks)
	}
	for name, tc := range map[string]struct {
		address string
		want    string
	}{
		"the bridge":         {e.NodeIP() + ":9", "connection refused"},
		"the node":           {HostIP + ":9", "connection refused"},
		"somebody elsewhere": {"198.51.100.1:9", "no route to host"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		conn, err := e.Dial(ctx, "tcp", tc.address)
		if err == nil {
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
	// This process is still in its own network.
	if _, err := net.InterfaceByName(hostLink); err == nil {
		t.Error("the node's interface is outside")
	}
	removePod(t, e, id)
	// the pod's shim may take a moment to end
	Eventually(t, "nothing to be left by the pod", func() error {
		for _, leak := range e.Leaks() {
			// this test's own cgroup, which no agent removes
			if !strings.HasPrefix(leak, "cgroup ") {
				return errors.New(leak)
			}
		}
		return nil
	})
}

// TestProgram checks a program's life, and that the program is in the environment's network.
func TestProgram(t *testing.T) {
	e := Containerd(t, Options{OwnNetwork: true})
	p := e.NewProgram("httpd", "/bin/busybox", "httpd", "-f", "-p", "127.0.0.1:80", "-h", e.Dir)
	if err := p.Thaw(); err == nil {
		t.Error("a program that never began was thawed")
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err == nil {
		t.Error("it was started twice")
	}
	Eventually(t, "httpd to listen", func() error {
		conn, err := e.Dial(t.Context(), "tcp", "127.0.0.1:80")
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("stop a frozen program: %v", err)
	}
	if p.Running() {
		t.Error("it runs on")
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if p.Kill9(); p.Running() {
		t.Error("it outlived its kill")
	}
	if filepath.Dir(p.Log) != e.Dir {
		t.Errorf("its log is %s", p.Log)
	}
}
