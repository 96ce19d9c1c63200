package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/agent/hostlogs"
	"github.com/berthd/berth/agent/metrics"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/timeline"
	"github.com/berthd/berth/agent/tracing"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/configs"
)

// Config says where to listen and what to say about the agent.
type Config struct {
	// Socket is the unix socket's path, absolute; SocketGroup may open it, besides root.
	Socket, SocketGroup string
	// Healthz and ReadOnly are the addresses of the ports, as host:port; empty for none.
	Healthz, ReadOnly string
	// API is the address of the port with TLS, as host:port; empty for none. Handlers are what it has beside the kubelet's read-only port.
	API string
	Handlers
	// PodLogsDir is the root of the container logs, CheckpointsDir that of containers' checkpoints.
	PodLogsDir, CheckpointsDir string
	// StreamIdle is how long a stream may rest before it is closed; 0 for no end.
	StreamIdle time.Duration
	// Node and Version are the node's name and the agent's version, Kubernetes the version whose kubelet it is in the place of, and Flags the flags that it runs with.
	Node, Version, Kubernetes string
	Flags                     map[string]string
	// Configz is what /configz shows, by component.
	Configz map[string]any
}

// Handlers say what of the kubelet's debugging the port with TLS has.
type Handlers struct {
	// Debugging has logs of containers, streams and commands; all that follows needs it (enableDebuggingHandlers).
	Debugging bool
	// Profiling has Go's profiles (enableProfilingHandler), DebugFlags lets the verbosity be set (enableDebugFlagsHandler).
	Profiling, DebugFlags bool
	// SystemLogs has the host's own logs (enableSystemLogHandler), SystemLogQuery answers queries for those of services, too (enableSystemLogQuery).
	SystemLogs, SystemLogQuery bool
	// Checkpoint has checkpoints of containers (feature gate ContainerCheckpoint); Flagz and Statusz have the pages of those names (ComponentFlagz, ComponentStatusz).
	Checkpoint, Flagz, Statusz bool
}

// ConfigFrom reads the agent's config.
func ConfigFrom(cfg *configs.Config, name, version string) Config {
	c := Config{
		Socket: cfg.Berth.Socket, SocketGroup: cfg.Berth.SocketGroup, PodLogsDir: cfg.Kubelet.PodLogsDir,
		Node: name, Version: version,
		Configz: configzOf(cfg), CheckpointsDir: filepath.Join(cfg.RootDir, "checkpoints"), StreamIdle: cfg.Kubelet.StreamingConnectionIdleTimeout.Duration,
		Kubernetes: node.KubernetesVersion(), Flags: cfg.Flagz(),
	}
	k := &cfg.Kubelet
	c.SystemLogQuery = *k.EnableSystemLogHandler && *k.EnableSystemLogQuery
	if port := cfg.Kubelet.HealthzPort; port != nil && *port > 0 {
		c.Healthz = net.JoinHostPort(cfg.Kubelet.HealthzBindAddress, strconv.Itoa(int(*port)))
	}
	if port := cfg.Kubelet.ReadOnlyPort; port > 0 {
		c.ReadOnly = net.JoinHostPort(cfg.Kubelet.Address, strconv.Itoa(int(port)))
	}
	if cfg.ServesAPI() {
		c.API = net.JoinHostPort(cfg.Kubelet.Address, strconv.Itoa(int(cfg.Kubelet.Port)))
		c.Debugging, c.Profiling, c.DebugFlags = *k.EnableDebuggingHandlers, *k.EnableProfilingHandler, *k.EnableDebugFlagsHandler
		c.SystemLogs, c.Checkpoint = *k.EnableSystemLogHandler, cfg.GateEnabled("ContainerCheckpoint")
		c.Flagz, c.Statusz = cfg.GateEnabled("ComponentFlagz"), cfg.GateEnabled("ComponentStatusz")
	}
	return c
}

// Backend is the agent as the server asks it. Everything that it returns is the caller's or must not be modified, as said.
type Backend interface {
	PodBackend
	EventBackend
	// Verdicts returns what became of each document of each manifest.
	Verdicts() []source.Verdict
	// Pulls returns the images that are being fetched, and how far they are, or were and failed.
	Pulls(ctx context.Context) []api.Pull
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
	// AddEphemeral adds an ephemeral container to a pod that runs, and returns once that is kept. The errors are [ErrInvalid] and [ErrPodOver], among others.
	AddEphemeral(ctx context.Context, uid types.UID, c *v1.EphemeralContainer) error
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
	// UnderWay is the step that has begun and not ended, and UnderWayFor how long ago it began; zero between two passes.
	UnderWay    string
	UnderWayFor time.Duration
}

const (
	// ObserveStep is the look at the runtime that each pass begins with.
	ObserveStep = "observe"
	// SlotStep is the wait for a place among the pods that start at once.
	SlotStep = "slot"
)

// RemovePrefix marks the steps of the way down in a [Story].
const RemovePrefix = "remove "

// Runtime is what the server needs of the container runtime; every cri.Runtime has it.
type Runtime interface {
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	CheckpointContainer(ctx context.Context, id, location string, timeout time.Duration) error
	Streams
}

// Streams is what of the runtime runs commands and opens streams.
type Streams interface {
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error)
	Exec(ctx context.Context, req *runtimeapi.ExecRequest) (url string, err error)
	Attach(ctx context.Context, req *runtimeapi.AttachRequest) (url string, err error)
	PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (url string, err error)
}

// Drainer stops all pods of the node and keeps them stopped.
type Drainer interface {
	// Drain begins to, Undrain lets them run again, Drained says how it stands.
	Drain(req api.DrainRequest) error
	Undrain() error
	Drained() api.Drain
}

// Stats tells what the node and its pods use; *stats.Collector does.
type Stats interface {
	// Summary is what /stats/summary has, or of it cpu and memory only.
	Summary(ctx context.Context, onlyCPUAndMemory bool) *statsapi.Summary
	// Resource and Cadvisor read the metrics of /metrics/resource and /metrics/cadvisor.
	Resource() prometheus.Gatherer
	Cadvisor() prometheus.Gatherer
}

// Guard decides about requests on the port with TLS; *auth.Guard is one.
type Guard interface {
	// Check answers a request that is not let in, and reports whether it is. The path is that of the handler that would answer it.
	Check(w http.ResponseWriter, r *http.Request, path string) bool
}

// Deps are the server's surroundings.
type Deps struct {
	Runtime Runtime
	Stats   Stats
	// TLS and Guard are the API port's, where there is one.
	TLS   *tls.Config
	Guard Guard
	// Drainer is nil where the node cannot be drained.
	Drainer Drainer
	// Tracing has spans of the requests to the API's port; nil for none.
	Tracing *tracing.Tracing
	// SetVerbosity sets how much the agent logs, as the kubelet's flag -v says; nil where that cannot be.
	SetVerbosity func(level uint32)
	// Metrics are served at /metrics and, those of probes, at /metrics/probes, and the server's own are added to them.
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
	checked checked
	began   time.Time
	plain   chan struct{}
	streams chan struct{}
	// checkpointing is held by who makes a checkpoint.
	checkpointing chan struct{}
	hostLogs      *hostlogs.Handler
	// listening is closed once the socket is there.
	listening chan struct{}
	listens   sync.Once
}

// Bounds of requests at work at once: short ones, and those that last (followed logs, watches, exec).
const (
	maxPlain   = 64
	maxStreams = 256
)

// New returns a server that does not listen yet.
func New(cfg Config, backend Backend, deps Deps) (*Server, error) {
	if cfg.API != "" && (deps.TLS == nil || deps.Guard == nil) {
		return nil, errors.New("the API's port needs TLS and a guard")
	}
	s := &Server{
		cfg: cfg, backend: backend, deps: deps, log: deps.Logger,
		plain: make(chan struct{}, maxPlain), streams: make(chan struct{}, maxStreams), listening: make(chan struct{}),
		began: time.Now(), checkpointing: make(chan struct{}, 1), hostLogs: hostlogs.New(hostlogs.Config{Query: cfg.SystemLogQuery}),
	}
	var err error
	if s.counts, err = newCounts(deps.Metrics.Registry); err != nil {
		return nil, err
	}
	return s, nil
}

// Listening is closed once callers of the socket are answered.
func (s *Server) Listening() <-chan struct{} { return s.listening }

// retryListen is how long the server waits before it tries again to listen on a port that is taken.
const retryListen = 5 * time.Second

// Run listens and answers until ctx ends, and returns when everything is closed and joined. Not getting the socket is an error; a port that is
// taken is tried again.
func (s *Server) Run(ctx context.Context) error {
	socket, err := listenSocket(ctx, s.cfg.Socket, s.cfg.SocketGroup, s.log)
	if err != nil {
		return err
	}
	s.listens.Do(func() { close(s.listening) })
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, port := range []struct {
		name, address string
		handler       http.Handler
		tls           *tls.Config
	}{
		{"healthz", s.cfg.Healthz, s.healthzRoutes(), nil},
		{"read-only", s.cfg.ReadOnly, s.readOnlyRoutes(), nil},
		{"API", s.cfg.API, s.apiRoutes(), s.deps.TLS},
	} {
		if port.address != "" {
			wg.Go(func() { s.servePort(ctx, port.name, port.address, port.handler, port.tls) })
		}
	}
	s.log.Info("listening", "socket", s.cfg.Socket, "healthz", s.cfg.Healthz, "readOnly", s.cfg.ReadOnly, "api", s.cfg.API)
	return s.serve(ctx, socket, socket.allow(s.socketRoutes()), nil)
}

// servePort serves on a TCP address, with TLS where secure is not nil, and tries again as long as it is taken.
func (s *Server) servePort(ctx context.Context, name, address string, handler http.Handler, secure *tls.Config) {
	for ctx.Err() == nil {
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp", address)
		if err == nil {
			err = s.serve(ctx, l, handler, secure)
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

// serve answers on one listener until ctx ends, with TLS where secure is not nil.
func (s *Server) serve(ctx context.Context, l net.Listener, handler http.Handler, secure *tls.Config) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	tracked := track(l)
	var requests gate
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !requests.enter() {
				fail(w, http.StatusServiceUnavailable, "the agent is ending")
				return
			}
			defer requests.leave()
			handler.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: withPeer, TLSConfig: secure,
	}
	stop := context.AfterFunc(ctx, func() {
		cancel()
		soon, done := context.WithTimeout(base, 0)
		done()
		_ = server.Shutdown(soon) // closes the listener and what is idle
	})
	defer stop()
	var err error
	if secure != nil {
		err = server.ServeTLS(tracked, "", "")
	} else {
		err = server.Serve(tracked)
	}
	cancel()
	ended := requests.close()
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
