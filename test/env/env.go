package env

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/images"
)

const (
	// readyTimeout bounds the start of containerd on a busy machine, on which a dozen of them start.
	readyTimeout = 10 * time.Minute
	// stopTimeout bounds the end of containerd or an agent after SIGTERM.
	stopTimeout = time.Minute
	// runtimeVariable chooses the runtime of environments that do not say.
	runtimeVariable = "BERTH_TEST_RUNTIME"
	// logTail is how many bytes of a log a failed test shows.
	logTail = 16 << 10
)

// Options are the options of an environment.
type Options struct {
	// Version is [Containerd24] (the default) or [ContainerdDebian].
	Version string
	// Endpoint, if set, is a containerd to use instead of a private one. The environment then has
	// no network of its own, cannot kill or restart containerd, and imports no images.
	Endpoint string
	// Native disables containerd's CRI plugin, and the agents run pods by the native runtime. It is
	// set for every private containerd if $BERTH_TEST_RUNTIME is "native".
	Native bool
	// OwnNetwork puts containerd, its pods, the agents and the programs into a network namespace
	// that has no way out (see [Env.In]). Pods then have a default route, which leads to the node.
	// It needs a private containerd. A [Registry] stays outside.
	OwnNetwork bool
}

// Env is a containerd and the agents on it.
type Env struct {
	Layout
	// Version is the version of containerd, as in [Options]. It is empty for a containerd that the
	// environment does not own.
	Version string
	// Native says that containerd has no CRI plugin, as in [Options].
	Native bool
	// Checkout is the root folder of the source tree.
	Checkout string

	slot       slot
	binaries   binaries
	containerd *process
	conn       *grpc.ClientConn
	// criConn leads to a CRI service: containerd's, or that of the first agent in its place.
	criConn *grpc.ClientConn

	mu       sync.Mutex
	archives []string // that were imported
	agents   []*Agent
	programs []*Program
	closed   bool
}

// Containerd starts an environment for a test and removes it when the test ends. If the test fails,
// its output gets the ends of the logs.
func Containerd(t testing.TB, opts Options) *Env {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("a containerd of its own needs root")
	}
	e, err := New(context.Background(), opts)
	if err != nil {
		t.Fatalf("start an environment: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			e.showLogs(t)
		}
		if err := e.Close(); err != nil {
			t.Errorf("remove the environment: %v", err)
		}
	})
	return e
}

// New starts an environment, and the caller closes it. New first removes the remains of the slot,
// and then waits until containerd is ready.
func New(ctx context.Context, opts Options) (*Env, error) {
	root, err := images.Root()
	if err != nil {
		return nil, err
	}
	if opts.Version == "" {
		opts.Version = Containerd24
	}
	s, err := acquire()
	if err != nil {
		return nil, err
	}
	e := &Env{Layout: layoutOf(s.number), Version: opts.Version, Checkout: root, slot: s}
	e.Native = opts.Endpoint == "" && (opts.Native || NativeByDefault())
	if opts.Endpoint != "" {
		e.Version, e.Endpoint = "", opts.Endpoint
		e.CNIConfDir = "/etc/cni/net.d"
	}
	if err := e.setUp(ctx, opts.OwnNetwork && e.private()); err != nil {
		e.showLogsOn(os.Stderr)
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// private reports whether the environment owns containerd.
func (e *Env) private() bool { return e.Version != "" }

func (e *Env) setUp(ctx context.Context, ownNetwork bool) error {
	if err := os.MkdirAll(e.Dir, 0o711); err != nil {
		return fmt.Errorf("make the environment's folder: %w", err)
	}
	conn, err := dial(e.Endpoint)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", e.Endpoint, err)
	}
	e.conn, e.criConn = conn, conn
	if e.Native {
		if e.criConn, err = dial("unix://" + agentDirs(e.Dir, firstAgent).criSocket()); err != nil {
			return fmt.Errorf("connect to the agent's CRI: %w", err)
		}
	}
	if !e.private() {
		return e.waitReady(ctx)
	}
	if e.binaries, err = binariesOf(e.Version, e.Checkout); err != nil {
		return err
	}
	if err := os.MkdirAll(e.CNIConfDir, 0o700); err != nil {
		return fmt.Errorf("make the network's folder: %w", err)
	}
	if ownNetwork {
		if err := e.makeNetwork(); err != nil {
			return err
		}
	}
	if err := e.writeConfigs(e.binaries, ownNetwork, e.Native); err != nil {
		return err
	}
	if err := e.Start(ctx); err != nil {
		return err
	}
	archives, err := images.Build(ctx, e.Checkout)
	if err != nil {
		return err
	}
	for _, a := range archives {
		if err := e.Import(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// dial returns a connection to a CRI service whose requests end, whatever the service does.
func dial(endpoint string) (*grpc.ClientConn, error) {
	return grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			ctx, cancel := context.WithTimeout(ctx, podTimeout)
			defer cancel()
			return invoke(ctx, method, request, reply, conn, opts...)
		}))
}

// NativeByDefault reports whether environments are native unless they say otherwise.
func NativeByDefault() bool { return os.Getenv(runtimeVariable) == "native" }

// Runtime returns a client of the CRI's runtime service. In a native environment the first agent
// serves it, while it runs.
func (e *Env) Runtime() runtimeapi.RuntimeServiceClient {
	return runtimeapi.NewRuntimeServiceClient(e.criConn)
}

// Images returns a client of the CRI's image service, as [Env.Runtime] does.
func (e *Env) Images() runtimeapi.ImageServiceClient {
	return runtimeapi.NewImageServiceClient(e.criConn)
}

// NodeIP returns the node's address on the pods' network.
func (e *Env) NodeIP() string { return e.PodCIDR.Addr().Next().String() }

// BinDir returns the folder of containerd's programs.
func (e *Env) BinDir() string { return e.binaries.dir }

// Close stops the agents, removes every pod, kills the programs, stops containerd and removes all
// that is left. After an error it goes on with the rest and joins the errors. Only the first call
// has an effect.
func (e *Env) Close() error {
	var errs []error
	e.mu.Lock()
	agents, programs, closed := e.agents, e.programs, e.closed
	e.closed = true
	e.mu.Unlock()
	if closed {
		return nil
	}
	for _, a := range agents {
		errs = append(errs, a.Stop())
	}
	if e.private() && e.containerd != nil {
		if !e.containerd.ended() && !e.Native {
			e.removePods()
		}
		for _, p := range slices.Backward(programs) {
			p.Kill9() // the programs keep nothing that is needed
		}
		errs = append(errs, e.containerd.stop(stopTimeout))
	}
	if e.conn != nil {
		errs = append(errs, e.conn.Close())
	}
	if e.criConn != nil && e.criConn != e.conn {
		errs = append(errs, e.criConn.Close())
	}
	errs = append(errs, e.remove())
	e.slot.release()
	return errors.Join(errs...)
}

// showLogs writes the ends of containerd's and the agents' logs to the test's output.
func (e *Env) showLogs(t testing.TB) {
	t.Helper()
	for _, f := range e.logFiles() {
		t.Logf("--- the end of %s\n%s", f, tail(f))
	}
}

func (e *Env) showLogsOn(w *os.File) {
	for _, f := range e.logFiles() {
		fmt.Fprintf(w, "--- the end of %s\n%s\n", f, tail(f))
	}
}

func (e *Env) logFiles() []string {
	agents, _ := filepath.Glob(filepath.Join(e.Dir, "*", agentLog))
	programs, _ := filepath.Glob(filepath.Join(e.Dir, "*"+programLog))
	return slices.Concat([]string{e.log()}, programs, agents)
}

// tail returns the last bytes of a file, or nothing if the file cannot be read.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b[max(0, len(b)-logTail):])
}
