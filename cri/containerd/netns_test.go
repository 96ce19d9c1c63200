package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// netnsServer is a containerd with network namespaces in a directory of its own. Its sandbox has
// one of them.
type netnsServer struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	state string
	owned string
	looks int
	// fails is what a question for the sandboxes is answered with.
	fails error
}

func (s *netnsServer) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	s.looks++
	config, err := json.Marshal(map[string]any{"stateDir": s.state, "netnsMountsUnderStateDir": true})
	return &runtimeapi.StatusResponse{Info: map[string]string{"config": string(config)}}, err
}

func (s *netnsServer) ListPodSandbox(
	context.Context, *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "a"}, {Id: "on-the-host"}}}, s.fails
}

func (s *netnsServer) PodSandboxStatus(
	_ context.Context, req *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	info := `{"sandboxMetadata": null}`
	if req.PodSandboxId == "a" {
		info = fmt.Sprintf(
			`{"runtimeSpec": {"linux": {"namespaces": [{"type": "pid"}, {"type": "network", "path": %q}]}}}`, s.owned)
	}
	return &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{Id: req.PodSandboxId}, Info: map[string]string{"info": info},
	}, nil
}

// netnsPath returns a path with containerd's name for the nth network namespace.
func netnsPath(dir string, n int) string {
	return filepath.Join(dir, fmt.Sprintf("cni-%08x-0000-4000-8000-000000000000", n))
}

// mountOn mounts a namespace on a new file whose time is at.
func mountOn(t *testing.T, path, namespace string, at time.Time) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	if namespace == "" {
		return
	}
	if err := unix.Mount(namespace, path, "none", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
}

// newNetns makes a network namespace without a process. up says whether its loopback is up.
func newNetns(t *testing.T, path string, up bool, at time.Time) {
	t.Helper()
	process := exec.Command("/proc/self/exe")
	process.Env = []string{shimVariable + "=shim"}
	process.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	stdin, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	mountOn(t, path, proc(process.Process.Pid, "ns/net"), at)
	stdin.Close()
	_ = process.Wait()
	if !up {
		return
	}
	done := make(chan error, 1)
	go func() {
		done <- insideNetns(path, func() error {
			return netlink.LinkSetUp(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "lo", Index: 1}})
		})
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestRemoveForgotten(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	state := t.TempDir()
	dir := filepath.Join(state, "netns")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const forgotten, file, owned, up, inhabited, young = 1, 2, 3, 4, 5, 6
	before := time.Now().Add(-time.Hour)
	newNetns(t, netnsPath(dir, forgotten), false, before)
	mountOn(t, netnsPath(dir, file), "", before)
	newNetns(t, netnsPath(dir, owned), false, before)
	newNetns(t, netnsPath(dir, up), true, before)
	newNetns(t, netnsPath(dir, young), false, time.Now().Add(time.Hour))
	newNetns(t, filepath.Join(dir, "somebody"), false, before)
	process := exec.Command("/proc/self/exe")
	process.Env = []string{shimVariable + "=shim"}
	process.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	stdin, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		_ = process.Wait()
	}()
	mountOn(t, netnsPath(dir, inhabited), proc(process.Process.Pid, "ns/net"), before)

	path := socket(t)
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &netnsServer{state: state, owned: netnsPath(dir, owned)}
	g := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(g, s)
	go func() { _ = g.Serve(listener) }()
	defer g.Stop()
	r := dial(t, path, Config{})

	found, err := r.ForgottenPaths(t.Context())
	if want := []string{netnsPath(dir, forgotten), netnsPath(dir, file)}; err != nil || !slices.Equal(found, want) {
		t.Errorf("found %q, %v, want %q", found, err, want)
	}
	if n, err := r.RemoveForgottenPaths(t.Context()); n != 2 || err != nil {
		t.Errorf("removed %d: %v", n, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 5 {
		t.Errorf("left %v, %v", left, err)
	}
	for _, n := range []int{owned, up, inhabited, young} {
		var st unix.Statfs_t
		if err := unix.Statfs(netnsPath(dir, n), &st); err != nil || st.Type != unix.NSFS_MAGIC {
			t.Errorf("namespace %d is no namespace any more: %v", n, err)
		}
	}
	looks := s.looks
	newNetns(t, netnsPath(dir, 7), false, before)
	if n, err := r.RemoveForgottenPaths(t.Context()); n != 0 || err != nil || s.looks != looks {
		t.Errorf("in the same life of the runtime it looked again and removed %d: %v", n, err)
	}
	now := time.Now().Add(time.Minute)
	if err := os.Chtimes(path, now, now); err != nil {
		t.Fatal(err)
	}
	if n, err := r.RemoveForgottenPaths(t.Context()); n != 1 || err != nil {
		t.Errorf("in another life of the runtime it removed %d: %v", n, err)
	}
}
