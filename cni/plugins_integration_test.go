//go:build integration

package cni

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// threadNetns is the network namespace of the calling thread.
const threadNetns = "/proc/thread-self/ns/net"

// newNetns makes a network namespace that is kept by a mount at the returned path.
func newNetns(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount(threadNetns, path, "", unix.MS_BIND, "")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return path
}

// inside runs f in a network namespace.
func inside(t *testing.T, path string, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			_ = unix.Close(fd)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// addressesOf returns the addresses of an interface, "" if there is no such interface.
func addressesOf(name string, out *string) func() error {
	return func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			*out = ""
			return nil //nolint:nilerr // the interface is gone
		}
		all, err := netlink.AddrList(link, netlink.FAMILY_V4)
		for _, a := range all {
			*out += a.IP.String()
		}
		return err
	}
}

// The plugins of the CNI project attach a pod to a bridge, in a network namespace of this test.
func TestBridge(t *testing.T) {
	leases := t.TempDir()
	h := newHost(t)
	h.bin = "/usr/lib/cni"
	// portmap 1.1 fails every CHECK of a network without IPv6, and 0.3.1 has no CHECK.
	const portmap = `{"type":"portmap","capabilities":{"portMappings":true},"snat":false},`
	for version, mapping := range map[string]string{"0.3.1": portmap, "1.0.0": ""} {
		t.Run(version, func(t *testing.T) {
			h.config("10-bridge.conflist", fmt.Sprintf(`{"cniVersion":%q,"name":"pods","plugins":[`+
				`{"type":"loopback"},`+
				`{"type":"bridge","bridge":"br0","isGateway":true,"ipam":{"type":"host-local","dataDir":%q,`+
				`"ranges":[[{"subnet":"10.222.250.0/24"}]]}},`+
				`%s{"type":"bandwidth","capabilities":{"bandwidth":true}}]}`, version, leases, mapping))
			node, pod := newNetns(t, "node"), newNetns(t, "pod")
			n := h.network()
			sandbox := Sandbox{ID: "a", NetNS: pod, Capabilities: Capabilities{
				PortMappings: []PortMapping{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}},
				Bandwidth:    &Bandwidth{IngressRate: 1_000_000, IngressBurst: 1_000_000},
			}}
			var result *Result
			inside(t, node, func() (err error) { result, err = n.Add(t.Context(), sandbox); return err })
			var got string
			inside(t, pod, addressesOf(Interface, &got))
			if len(result.IPs) != 1 || result.IPs[0].String() != got || !strings.HasPrefix(got, "10.222.250.") {
				t.Errorf("the result is %v, the pod has %q", result, got)
			}
			inside(t, node, func() error { return n.Check(t.Context(), "a") })
			inside(t, node, func() error { return n.Del(t.Context(), "a") })
			inside(t, pod, addressesOf(Interface, &got))
			if got != "" {
				t.Errorf("the pod still has %q", got)
			}
			if held, err := filepath.Glob(filepath.Join(leases, "pods", "10.*")); err != nil || len(held) > 0 {
				t.Errorf("addresses are still given out: %v %v", held, err)
			}
			if left := h.left(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}
