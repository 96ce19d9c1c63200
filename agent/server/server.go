package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/metrics"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/timeline"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/configs"
)

// Config says where to listen and what to say about the agent.
type Config struct {
	// Socket is the unix socket's path, absolute; SocketGroup may open it, besides root.
	Socket, SocketGroup string
	// Healthz and ReadOnly are the addresses of the ports, as host:port; empty for none.
	Healthz, ReadOnly string
	// PodLogsDir is the root of the container logs.
	PodLogsDir string
	// Node and Version are the node's name and the agent's version.
	Node, Version string
	// Configz is what /configz shows, by component.
	Configz map[string]any
}

// ConfigFrom reads the agent's config.
func ConfigFrom(cfg *configs.Config, node, version string) Config {
	c := Config{
		Socket: cfg.Berth.Socket, SocketGroup: cfg.Berth.SocketGroup, PodLogsDir: cfg.Kubelet.PodLogsDir,
		Node: node, Version: version,
		Configz: map[string]any{"kubeletconfig": cfg.Kubelet, "berth": cfg.Berth},
	}
	if port := cfg.Kubelet.HealthzPort; port != nil && *port > 0 {
		c.Healthz = net.JoinHostPort(cfg.Kubelet.HealthzBindAddress, strconv.Itoa(int(*port)))
	}
	if port := cfg.Kubelet.ReadOnlyPort; port > 0 {
		c.ReadOnly = net.JoinHostPort(cfg.Kubelet.Address, strconv.Itoa(int(port)))
	}
	return c
}

// Backend is the agent as the server asks it. Everything that it returns is the caller's or must not be modified, as said.
type Backend interface {
	PodBackend
	EventBackend
	// Verdicts returns what became of each document of each manifest.
	Verdicts() []source.Verdict
	// Pulls returns the images that are being fetched, or were and failed.
	Pulls() []api.Pull
	// Healthy returns an error when the agent's main loop has not turned for longer than limit.
	Healthy(limit time.Duration) error
}

// PodBackend knows the pods.
type PodBackend interface {
	// Pods returns every pod of the node with its status, sorted by namespace and name. The pods are the caller's, what they point to is shared and
	// must not be modified.
	Pods() []*v1.Pod
	// WatchPods returns a channel that receives after any pod has changed, and a function that ends the watch.
	WatchPods() (changed <-chan struct{}, stop func())
	// Story returns what a pod's worker did and does.
	Story(uid types.UID) (Story, bool)
}

// EventBackend has the node's events; agent/events.Recorder is one.
type EventBackend interface {
	// Events returns the kept events, those that happened last at the end.
	Events() []v1.Event
	// WatchEvents returns the kept events, a channel of those that follow, and a function that ends the watch.
	WatchEvents() (kept []v1.Event, following <-chan v1.Event, stop func())
}

// Story is a pod's way so far.
type Story struct {
	// Phase is the worker's.
	Phase string
	// Successor says that the pod waits for its predecessor of the same name to be gone.
	Successor bool
	// RetryAt is when the next pass is due if nothing happens; zero if it waits for something to happen.
	RetryAt time.Time
	// Ladder has the names of the steps in the order of bring-up; on the way down they have [RemovePrefix] before them.
	Ladder  []string
	Entries []timeline.Entry
}

// RemovePrefix marks the steps of the way down in a [Story].
const RemovePrefix = "remove "

// Runtime is what the server needs of the container runtime; every cri.Runtime has it.
type Runtime interface {
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	Streams
}

// Streams is what of the runtime runs commands and opens streams.
type Streams interface {
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error)
	Exec(ctx context.Context, req *runtimeapi.ExecRequest) (url string, err error)
	Attach(ctx context.Context, req *runtimeapi.AttachRequest) (url string, err error)
	PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (url string, err error)
}

// Deps are the server's surroundings.
type Deps struct {
	Runtime Runtime
	// Metrics are served at /metrics, and the server's own are added to them.
	Metrics *metrics.Set
	Logger  *slog.Logger
}

// Server is the agent's HTTP API. Make it with [New].
type Server struct {
	cfg     Config
	backend Backend
	deps    Deps
	log     *slog.Logger
	counts  counts
	plain   chan struct{}
	streams chan struct{}
}

// Bounds of requests at work at once: short ones, and those that last (followed logs, watches, exec).
const (
	maxPlain   = 64
	maxStreams = 256
)

// New returns a server that does not listen yet.
func New(cfg Config, backend Backend, deps Deps) (*Server, error) {
	s := &Server{
		cfg: cfg, backend: backend, deps: deps, log: deps.Logger,
		plain: make(chan struct{}, maxPlain), streams: make(chan struct{}, maxStreams),
	}
	var err error
	if s.counts, err = newCounts(deps.Metrics.Registry); err != nil {
		return nil, err
	}
	return s, nil
}

// retryListen is how long the server waits before it tries again to listen on a port that is taken.
const retryListen = 5 * time.Second

// Run listens and answers until ctx ends, and returns when everything is closed and joined. Not getting the socket is an error; a port that is
// taken is tried again.
func (s *Server) Run(ctx context.Context) error {
	socket, err := listenSocket(ctx, s.cfg.Socket, s.cfg.SocketGroup, s.log)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, port := range []struct {
		name, address string
		handler       http.Handler
	}{
		{"healthz", s.cfg.Healthz, s.healthzRoutes()},
		{"read-only", s.cfg.ReadOnly, s.readOnlyRoutes()},
	} {
		if port.address != "" {
			wg.Go(func() { s.servePort(ctx, port.name, port.address, port.handler) })
		}
	}
	s.log.Info("listening", "socket", s.cfg.Socket, "healthz", s.cfg.Healthz, "readOnly", s.cfg.ReadOnly)
	return s.serve(ctx, socket, socket.allow(s.socketRoutes()))
}

// servePort serves on a TCP address, and tries again as long as it is taken.
func (s *Server) servePort(ctx context.Context, name, address string, handler http.Handler) {
	for ctx.Err() == nil {
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp", address)
		if err == nil {
			err = s.serve(ctx, l, handler)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		s.log.Error("port not served; it is tried again", "server", name, "address", address, "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryListen):
		}
	}
}

// Timeouts of connections. There is none for writing: a followed log may rest as long as its reader does.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	// closeTimeout is how long requests may go on after the context ended, before their connections are cut.
	closeTimeout = time.Second
)

// serve answers on one listener until ctx ends.
func (s *Server) serve(ctx context.Context, l net.Listener, handler http.Handler) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	tracked := track(l)
	var requests sync.WaitGroup
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			defer requests.Done()
			handler.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: withPeer,
	}
	stop := context.AfterFunc(ctx, func() {
		cancel()
		soon, done := context.WithTimeout(base, 0)
		done()
		_ = server.Shutdown(soon) // closes the listener and what is idle
	})
	defer stop()
	err := server.Serve(tracked)
	cancel()
	ended := make(chan struct{})
	go func() {
		requests.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeTimeout):
	}
	tracked.closeAll() // hijacked connections are the listener's to close
	_ = server.Close()
	<-ended
	if errors.Is(err, http.ErrServerClosed) || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serving on %s: %w", l.Addr(), err)
}
