package remote

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// server is a CRI server whose methods a test sets as needed.
type server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	name, version string
	stop          func(context.Context, *runtimeapi.StopContainerRequest) error
	exec          func(context.Context, *runtimeapi.ExecSyncRequest) error
	status        func(context.Context) error
	events        func(grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error
}

func (s *server) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: s.name, RuntimeVersion: s.version}, nil
}

func (s *server) StopContainer(
	ctx context.Context, req *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	return &runtimeapi.StopContainerResponse{}, s.stop(ctx, req)
}

func (s *server) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	return &runtimeapi.ExecSyncResponse{}, s.exec(ctx, req)
}

func (s *server) Status(ctx context.Context, _ *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{}, s.status(ctx)
}

func (s *server) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	if s.events == nil {
		return status.Error(codes.Unimplemented, "no events")
	}
	return s.events(stream)
}

// socket returns a path for a socket.
func socket(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "s")
}

// serve serves s at path until the test ends or the returned function is called.
func serve(t *testing.T, path string, s *server) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(g, s)
	runtimeapi.RegisterImageServiceServer(g, s)
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

// dial returns a Runtime that is closed at the end of the test, before the server.
func dial(t *testing.T, cfg Config) *Runtime {
	t.Helper()
	r, err := Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := r.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	})
	return r
}

func TestDialRefusesBadEndpoints(t *testing.T) {
	for _, endpoint := range []string{
		"tcp://127.0.0.1:1", "relative/path", "unix://relative", "/" + strings.Repeat("x", 107),
	} {
		for _, cfg := range []Config{{Endpoint: endpoint}, {ImageEndpoint: endpoint}} {
			if _, err := Dial(t.Context(), cfg); !errdefs.IsInvalidArgument(err) ||
				!strings.Contains(err.Error(), endpoint) {
				t.Errorf("Dial(%+v) gave %v, want an invalid argument that names the endpoint", cfg, err)
			}
		}
	}
}

func TestAwayRuntimeIsUnavailable(t *testing.T) {
	path := socket(t)
	r := dial(t, Config{Endpoint: "unix://" + path})
	for range 3 {
		if _, err := r.Version(t.Context()); !errdefs.IsUnavailable(err) {
			t.Fatalf("before the runtime is up: got %v, want unavailable", err)
		}
		if _, err := r.Events(t.Context()); !errdefs.IsUnavailable(err) {
			t.Fatalf("before the runtime is up: got %v, want unavailable", err)
		}
	}
	for range 3 { // it starts, stops, and starts again
		stop := serve(t, path, &server{name: "test"})
		eventually(t, "the runtime answers", func() bool {
			_, err := r.Version(t.Context())
			if err != nil && !errdefs.IsUnavailable(err) {
				t.Fatalf("while the runtime comes up: got %v, want unavailable", err)
			}
			return err == nil
		})
		stop()
		if _, err := r.Version(t.Context()); !errdefs.IsUnavailable(err) {
			t.Fatalf("after the runtime went: got %v, want unavailable", err)
		}
	}
}

func TestSilentSocketIsUnavailable(t *testing.T) {
	path := socket(t)
	l, err := net.Listen("unix", path) // the kernel accepts, nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := dial(t, Config{Endpoint: path, RequestTimeout: time.Hour})
	if _, err := r.Version(t.Context()); !errdefs.IsUnavailable(err) {
		t.Errorf("got %v, want unavailable", err)
	}
}

func TestDeadlines(t *testing.T) {
	path := socket(t)
	left := make(chan time.Duration, 1)
	note := func(ctx context.Context) error {
		deadline, ok := ctx.Deadline()
		if !ok {
			left <- 0
			return nil
		}
		left <- time.Until(deadline)
		return nil
	}
	serve(t, path, &server{
		stop:   func(ctx context.Context, _ *runtimeapi.StopContainerRequest) error { return note(ctx) },
		exec:   func(ctx context.Context, _ *runtimeapi.ExecSyncRequest) error { return note(ctx) },
		status: note,
	})
	r := dial(t, Config{Endpoint: path, RequestTimeout: time.Hour})
	own, cancel := context.WithTimeout(t.Context(), 10*time.Hour)
	defer cancel()
	for name, c := range map[string]struct {
		call func() error
		want time.Duration
	}{
		"request timeout": {func() error { _, err := r.Status(t.Context(), false); return err }, time.Hour},
		"the caller's":    {func() error { _, err := r.Status(own, false); return err }, 10 * time.Hour},
		"stop: grace and more": {
			func() error { return r.StopContainer(t.Context(), "c", 5*time.Hour) }, 6 * time.Hour,
		},
		"stop: negative grace": {func() error { return r.StopContainer(t.Context(), "c", -time.Hour) }, time.Hour},
		"exec: timeout and more": {
			func() error { _, err := r.ExecSync(t.Context(), "c", nil, 2*time.Hour); return err },
			2*time.Hour + execSlack,
		},
		"exec: none": {func() error { _, err := r.ExecSync(t.Context(), "c", nil, 0); return err }, 0},
	} {
		if err := c.call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := <-left; got > c.want || got < c.want-10*time.Minute {
			t.Errorf("%s: %s left, want at most %s, and nearly that", name, got, c.want)
		}
	}
}

func TestHangingCallEndsAtItsDeadline(t *testing.T) {
	path := socket(t)
	serve(t, path, &server{status: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
	r := dial(t, Config{Endpoint: path, RequestTimeout: 20 * time.Millisecond})
	if _, err := r.Status(t.Context(), false); !errdefs.IsDeadlineExceeded(err) {
		t.Errorf("got %v, want deadline exceeded", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r = dial(t, Config{Endpoint: path})
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := r.Status(ctx, false); !errdefs.IsCanceled(err) {
		t.Errorf("got %v, want cancelled", err)
	}
}

func TestGraceIsRoundedUp(t *testing.T) {
	path := socket(t)
	got := make(chan int64, 1)
	serve(t, path, &server{stop: func(_ context.Context, req *runtimeapi.StopContainerRequest) error {
		got <- req.Timeout
		return status.Error(codes.NotFound, "gone")
	}})
	r := dial(t, Config{Endpoint: path})
	for grace, want := range map[time.Duration]int64{
		-time.Second:            0,
		0:                       0,
		1:                       1,
		time.Second:             1,
		1100 * time.Millisecond: 2,
	} {
		if err := r.StopContainer(t.Context(), "c", grace); err != nil {
			t.Error(err)
		}
		if s := <-got; s != want {
			t.Errorf("grace %s went out as %d s, want %d", grace, s, want)
		}
	}
}

func TestObserve(t *testing.T) {
	path := socket(t)
	serve(t, path, &server{name: "test", stop: func(context.Context, *runtimeapi.StopContainerRequest) error {
		return status.Error(codes.NotFound, "gone")
	}})
	type call struct {
		operation string
		missing   bool
	}
	var got []call
	r := dial(t, Config{Endpoint: path, Observe: func(operation string, d time.Duration, err error) {
		if d <= 0 {
			t.Errorf("%s took %s", operation, d)
		}
		got = append(got, call{operation, errdefs.IsNotFound(err)})
	}})
	if _, err := r.Version(t.Context()); err != nil {
		t.Error(err)
	}
	if err := r.StopContainer(t.Context(), "c", 0); err != nil {
		t.Error(err)
	}
	if want := []call{{"version", false}, {"stop_container", true}}; !slices.Equal(got, want) {
		t.Errorf("observed %v, want %v", got, want)
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
