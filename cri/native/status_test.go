package native

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	version "github.com/containerd/containerd/api/services/version/v1"
	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cni"
)

// newNetwork returns a network whose configuration is in a directory.
func newNetwork(t *testing.T, dir string) *cni.Network {
	t.Helper()
	network, err := cni.New(cni.Config{ConfDir: dir, BinDirs: []string{dir}, StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return network
}

// A verbose status has the network's configuration as it is now, and nothing if there is none.
func TestInfo(t *testing.T) {
	dir := t.TempDir()
	r := &Runtime{cfg: Config{Network: newNetwork(t, dir)}}
	for _, step := range []struct{ config, want string }{
		{"", ""},
		{
			`{"cniVersion": "1.0.0", "name": "a",` + "\n" + ` "plugins": [{"type": "bridge"}]}`,
			`{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"bridge"}]}`,
		},
		{"{", ""},
	} {
		if step.config != "" {
			if err := os.WriteFile(filepath.Join(dir, "10-a.conflist"), []byte(step.config), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := r.info()[networkInfo]; got != step.want {
			t.Errorf("with the file %q the status has %q", step.config, got)
		}
	}
}

// containerd is a containerd that has only its version.
type containerd struct {
	version.UnimplementedVersionServer
}

func (containerd) Version(context.Context, *emptypb.Empty) (*version.VersionResponse, error) {
	return &version.VersionResponse{Version: "2"}, nil
}

// The runtime answers only while containerd does: the question for its version fails, which shows
// the agent that the runtime is away, and the status says that it is not ready.
func TestWithoutContainerd(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "c.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false) // containerd's client waits for a socket that is missing
	server := grpc.NewServer()
	version.RegisterVersionServer(server, containerd{})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	stop := func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	r, err := New(t.Context(), Config{
		Containerd: socket, Namespace: "x", PauseImage: "pause", RootDir: t.TempDir(), StateDir: t.TempDir(),
		Network: newNetwork(t, dir), Handlers: map[string]Handler{"": {Binary: "true"}},
	})
	if err != nil {
		stop()
		t.Fatal(err)
	}
	defer r.Close()
	if said, err := r.Version(t.Context()); err != nil || said.RuntimeName != runtimeName {
		t.Errorf("the version is %v, %v", said, err)
	}
	if !ready(t, r) {
		t.Error("the runtime is not ready")
	}
	stop()
	if said, err := r.Version(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), socket) {
		t.Errorf("without containerd the version is %v, %v", said, err)
	}
	if ready(t, r) {
		t.Error("without containerd the runtime is ready")
	}
}

// ready reports whether a runtime says that it is ready.
func ready(t *testing.T, r *Runtime) bool {
	t.Helper()
	status, err := r.Status(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range status.GetStatus().GetConditions() {
		if c.GetType() == runtimeapi.RuntimeReady {
			return c.GetStatus()
		}
	}
	return false
}
