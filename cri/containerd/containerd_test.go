package containerd

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/remote"
	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(shimVariable); role != "" {
		playShim(role)
		return
	}
	os.Exit(leaks.Run(m))
}

// server is a runtime that has only a name.
type server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	name, version string
}

func (s *server) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: s.name, RuntimeVersion: s.version}, nil
}

func (s *server) RemovePodSandbox(
	context.Context, *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// socket returns a path for a socket.
func socket(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "s")
}

// serve serves s and the containerd services in others at path, until the test ends or the returned
// function is called.
func serve(t *testing.T, path string, s runtimeapi.RuntimeServiceServer, others ...any) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(g, s)
	for _, other := range others {
		switch other := other.(type) {
		case eventsapi.EventsServer:
			eventsapi.RegisterEventsServer(g, other)
		case tasksapi.TasksServer:
			tasksapi.RegisterTasksServer(g, other)
		default:
			t.Fatalf("cannot serve a %T", other)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Serve(l); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		g.Stop()
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// dial returns the containerd at path. It is closed at the end of the test, before the server.
func dial(t *testing.T, path string, cfg Config) *Runtime {
	t.Helper()
	connection, err := remote.Dial(t.Context(), remote.Config{Endpoint: path})
	if err != nil {
		t.Fatal(err)
	}
	r := New(cfg, connection)
	t.Cleanup(func() {
		for range 2 {
			r.Close()
		}
		if err := connection.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

func TestImportNeedsContainerd(t *testing.T) {
	path := socket(t)
	serve(t, path, &server{name: "other"})
	r := dial(t, path, Config{})
	if _, err := r.Import(t.Context(), "/nonexistent.tar"); !errdefs.IsNotImplemented(err) ||
		!strings.Contains(err.Error(), "nonexistent.tar") {
		t.Errorf("got %v, want not implemented, with the path", err)
	}
}

// eventually polls until done returns true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: did not happen", what)
		case <-tick.C:
		}
	}
}
