package containerd

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerdServer knows some containers and tasks.
type containerdServer struct {
	containersapi.UnimplementedContainersServer
	container string
}

func (s *containerdServer) Get(
	_ context.Context, r *containersapi.GetContainerRequest,
) (*containersapi.GetContainerResponse, error) {
	if r.ID != s.container {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	return &containersapi.GetContainerResponse{}, nil
}

type taskServer struct {
	tasksapi.UnimplementedTasksServer
	task string
}

func (s *taskServer) Get(_ context.Context, r *tasksapi.GetRequest) (*tasksapi.GetResponse, error) {
	if r.ContainerID != s.task {
		return nil, status.Error(codes.NotFound, "no such task")
	}
	return &tasksapi.GetResponse{}, nil
}

func TestRemoveForgottenBundles(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	// As /var/run, containerd's state directory may be reached by a link.
	top, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(top, link); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(link, "cri")
	dir := filepath.Join(top, "io.containerd.runtime.v2.task", "k8s.io")
	before := time.Now().Add(-time.Hour)
	for _, name := range []string{"forgotten", ".removed", "container", "task", "worked", "young"} {
		rootfs := filepath.Join(dir, name, "rootfs")
		if err := errors.Join(os.MkdirAll(rootfs, 0o755),
			os.WriteFile(filepath.Join(dir, name, "config.json"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if name != "young" {
			if err := os.Chtimes(filepath.Join(dir, name), before, before); err != nil {
				t.Fatal(err)
			}
		}
	}
	// What is mounted in a bundle may still be in use elsewhere: it is unmounted, and not removed.
	image := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(image, "file"), nil, 0o600),
		unix.Mount(image, filepath.Join(dir, "forgotten/rootfs"), "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "forgotten/rootfs"), unix.MNT_DETACH) })
	process := exec.Command("/proc/self/exe")
	process.Env, process.Dir = []string{shimVariable + "=shim"}, filepath.Join(dir, "worked")
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

	path := socket(t)
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(-time.Second)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(g, &netnsServer{state: state})
	containersapi.RegisterContainersServer(g, &containerdServer{container: "container"})
	tasksapi.RegisterTasksServer(g, &taskServer{task: "task"})
	go func() { _ = g.Serve(listener) }()
	defer g.Stop()
	r := dial(t, path, Config{})
	if n, err := r.RemoveForgottenPaths(t.Context()); n != 2 || err != nil {
		t.Errorf("removed %d: %v", n, err)
	}
	for name, stays := range map[string]bool{
		"forgotten": false,
		".removed":  false,
		"container": true,
		"task":      true,
		"worked":    true,
		"young":     true,
	} {
		if _, err := os.Stat(filepath.Join(dir, name)); stays != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(image, "file")); err != nil {
		t.Errorf("what was mounted in a bundle is gone: %v", err)
	}
}

// Bundles are removed also while nobody can say which network namespaces are forgotten, and the
// next call looks again.
func TestRemoveForgottenBundlesAlone(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("looking below mounts needs root")
	}
	top := t.TempDir()
	state := filepath.Join(top, "cri")
	bundle := filepath.Join(top, "io.containerd.runtime.v2.task", "k8s.io", "forgotten")
	before := time.Now().Add(-time.Hour)
	forget := func() {
		if err := errors.Join(os.MkdirAll(bundle, 0o755), os.Chtimes(bundle, before, before)); err != nil {
			t.Fatal(err)
		}
	}
	forget()
	if err := os.MkdirAll(filepath.Join(state, "netns"), 0o755); err != nil {
		t.Fatal(err)
	}
	mountOn(t, netnsPath(filepath.Join(state, "netns"), 1), "", before)
	path := socket(t)
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &netnsServer{state: state, fails: status.Error(codes.Internal, "out of order")}
	g := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(g, s)
	containersapi.RegisterContainersServer(g, &containerdServer{})
	tasksapi.RegisterTasksServer(g, &taskServer{})
	go func() { _ = g.Serve(listener) }()
	defer g.Stop()
	r := dial(t, path, Config{})
	for range 2 {
		n, err := r.RemoveForgottenPaths(t.Context())
		if n != 1 || err == nil || !strings.Contains(err.Error(), "out of order") {
			t.Errorf("removed %d: %v", n, err)
		}
		if _, err := os.Stat(bundle); err == nil {
			t.Error("the bundle stays")
		}
		forget()
	}
}
