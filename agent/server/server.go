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
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/agent/server/auth"
	"github.com/berthd/berth/agent/server/hostlogs"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/telemetry/history"
	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/agent/telemetry/tracing"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/configs"
)

// Config says where to listen and what to report about the agent.
type Config struct {
	// Socket is the unix socket's path, absolute; SocketGroup may open it, besides root.
	Socket, SocketGroup string
	// Ports are the TCP ports. Handlers say what the API's port, which has TLS, has beyond the
	// kubelet's read-only port.
	Ports []configs.Port
	Handlers
	// PodLogsDir is the directory of the container logs, CheckpointsDir the directory of
	// checkpoints.
	PodLogsDir, CheckpointsDir string
	// Manifests is the manifest directory; empty if there is none.
	Manifests string
	// StreamIdle is how long a stream may be idle before it is closed; 0 means no limit.
	StreamIdle time.Duration
	// Node is the node's name and Version the agent's version. Kubernetes is the version of the
	// kubelet that the agent replaces. Flags are the flags that the agent was started with.
	Node, Version, Kubernetes string
	Flags                     map[string]string
	// RootDir is the agent's root directory, and Endpoint the address of the runtime.
	RootDir, Endpoint string
	// Configz is what /configz shows, by component.
	Configz map[string]any
}

// Handlers say which of the kubelet's debugging handlers the port with TLS has.
type Handlers struct {
	// Debugging enables logs of containers, streams and commands. All fields below need it
	// (enableDebuggingHandlers).
	Debugging bool
	// Profiling enables Go's profiles (enableProfilingHandler). DebugFlags enables setting the
	// verbosity (enableDebugFlagsHandler).
	Profiling, DebugFlags bool
	// SystemLogs enables the host's logs (enableSystemLogHandler). SystemLogQuery enables queries
	// for the logs of services (enableSystemLogQuery).
	SystemLogs, SystemLogQuery bool
	// Checkpoint enables checkpoints of containers (feature gate ContainerCheckpoint). Flagz and
	// Statusz enable the pages of those names (ComponentFlagz, ComponentStatusz).
	Checkpoint, Flagz, Statusz bool
}

// ConfigFrom reads the agent's config.
func ConfigFrom(cfg *configs.Config, name, version string) Config {
	c := Config{
		Socket:         cfg.Berth.Socket,
		SocketGroup:    cfg.Berth.SocketGroup,
		PodLogsDir:     cfg.Kubelet.PodLogsDir,
		Manifests:      cfg.Kubelet.StaticPodPath,
		Ports:          cfg.Ports(),
		Node:           name,
		RootDir:        cfg.RootDir,
		Version:        version,
		Endpoint:       cfg.Kubelet.ContainerRuntimeEndpoint,
		Configz:        configzOf(cfg),
		CheckpointsDir: filepath.Join(cfg.RootDir, "checkpoints"),
		StreamIdle:     cfg.Kubelet.StreamingConnectionIdleTimeout.Duration,
		Kubernetes:     node.KubernetesVersion(),
		Flags:          cfg.Flagz(),
	}
	k := &cfg.Kubelet
	c.SystemLogQuery = *k.EnableSystemLogHandler && *k.EnableSystemLogQuery
	if cfg.ServesAPI() {
		c.Debugging, c.Profiling, c.DebugFlags = *k.EnableDebuggingHandlers, *k.EnableProfilingHandler,
			*k.EnableDebugFlagsHandler
		c.SystemLogs, c.Checkpoint = *k.EnableSystemLogHandler, cfg.GateEnabled("ContainerCheckpoint")
		c.Flagz, c.Statusz = cfg.GateEnabled("ComponentFlagz"), cfg.GateEnabled("ComponentStatusz")
	}
	return c
}

// Backend is the part of the agent that the server asks. Callers may modify the results, unless a
// method says otherwise.
type Backend interface {
	PodBackend
	EventBackend
	ImageBackend
	// Validated returns the validation result of each document of each manifest.
	Validated() []source.Result
	// Node returns the state of the runtime, of the connection to the cluster and of a drain.
	Node(ctx context.Context) api.NodeStatus
	// Notes returns whether the runtime answers, and the state of a drain.
	Notes(ctx context.Context) api.Notes
	// Healthy returns an error if the agent's main loop was silent for longer than limit.
	Healthy(limit time.Duration) error
	// DevicePluginsServed returns an error while device plugins cannot register.
	DevicePluginsServed() error
}

// PodBackend knows the pods.
type PodBackend interface {
	// Pods returns every pod of the node with its status, sorted by namespace and name. The caller
	// owns the pods; what they point to is shared and must not be modified.
	Pods() []*v1.Pod
	// WatchPods returns a channel that receives after any pod has changed, and a function that ends
	// the watch.
	WatchPods() (changed <-chan struct{}, stop func())
	// Timeline returns what a pod's worker did and does now.
	Timeline(uid types.UID) (timeline.Timeline, bool)
	// AddEphemeral adds an ephemeral container to a running pod, and returns after the container
	// was recorded. The errors are pod.ErrInvalid and pod.ErrOver, among others.
	AddEphemeral(ctx context.Context, uid types.UID, c *v1.EphemeralContainer) error
	// Try returns why the wanted pods would be refused, without those for which leaves returns
	// true. It decides nothing.
	Try(wanted []*v1.Pod, leaves func(*v1.Pod) bool) map[types.UID]*admit.Rejection
}

// EventBackend has the node's events; agent/telemetry/events.Recorder is one.
type EventBackend interface {
	// Events returns the kept events; the latest events are at the end.
	Events() []v1.Event
	// WatchEvents returns the kept events, a channel of the events after them, and a function that
	// ends the watch.
	WatchEvents() (kept []v1.Event, following <-chan v1.Event, stop func())
}

// ImageBackend has the node's images.
type ImageBackend interface {
	// Images returns the images and their use.
	Images(ctx context.Context) ([]api.Image, error)
	// Pulls returns the progress of image pulls, and the pulls that have failed.
	Pulls(ctx context.Context) []api.Pull
	// Archives returns the archives of the images directory, by path.
	Archives() []api.Archive
	// PruneImages removes the images that nothing uses, and returns them, also beside an error.
	// With dryRun it removes none.
	PruneImages(ctx context.Context, dryRun bool) ([]api.Image, error)
	// PullImage pulls an image, waits for the end, and returns the image's ID.
	PullImage(ctx context.Context, image string) (id string, err error)
	// RemoveImage removes one image with all of its names, and returns it. The errors are
	// garbage.ErrNoImage and garbage.ErrNeeded, among others.
	RemoveImage(ctx context.Context, name string) (api.Image, error)
}

// Runtime is the part of the container runtime that the server calls. Every cri.Runtime has it.
type Runtime interface {
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	CheckpointContainer(ctx context.Context, id, location string, timeout time.Duration) error
	Streams
}

// Streams is the part of the runtime that runs commands and opens streams.
type Streams interface {
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error)
	Exec(ctx context.Context, req *runtimeapi.ExecRequest) (url string, err error)
	Attach(ctx context.Context, req *runtimeapi.AttachRequest) (url string, err error)
	PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (url string, err error)
}

// Drainer stops all pods of the node and keeps them stopped.
type Drainer interface {
	// Drain begins to stop the pods, Undrain ends that, and Drained reports the progress.
	Drain(req api.DrainRequest) error
	Undrain() error
	Drained() api.Drain
}

// History has what happened before; *history.Recorder does.
type History interface {
	// Events returns the kept events since a time, the latest one last.
	Events(ctx context.Context, since time.Time) ([]v1.Event, error)
	// Previous returns the last life before the present one of a pod that has one of these names;
	// nil if there is none. current is the UID of the present pod, empty for none.
	Previous(ctx context.Context, namespace string, names []string, current types.UID) (*history.Past, error)
}

// Stats measures what the node and its pods use; *stats.Collector does.
type Stats interface {
	// Summary returns the content of /stats/summary, or only its cpu and memory.
	Summary(ctx context.Context, onlyCPUAndMemory bool) *statsapi.Summary
	// Resource and Cadvisor read the metrics of /metrics/resource and /metrics/cadvisor.
	Resource() prometheus.Gatherer
	Cadvisor() prometheus.Gatherer
}

// Guard decides about requests on the port with TLS; *auth.Guard is one.
type Guard interface {
	// Check reports whether a request is allowed, and answers it if it is not. The path is that of
	// the handler for the request.
	Check(w http.ResponseWriter, r *http.Request, path string) bool
}

// Deps are what the server works with.
type Deps struct {
	Runtime Runtime
	Stats   Stats
	// TLS and Guard are for the API's port, if there is one.
	TLS   *tls.Config
	Guard Guard
	// Drainer is nil if the node cannot be drained.
	Drainer Drainer
	// Operator is nil if nobody may stop pods. History is nil if none is kept.
	Operator Operator
	History  History
	// Tracing records spans of the requests to the API's port; nil for none.
	Tracing *tracing.Tracing
	// SetVerbosity sets how much the agent logs, in the numbers of the kubelet's flag -v; nil if
	// the verbosity cannot be set.
	SetVerbosity func(level uint32)
	// Metrics are served at /metrics and, for probes, at /metrics/probes. The server adds its own
	// metrics to them.
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
	faults  faults
	began   time.Time
	// These are the constants of their names except in tests.
	bodyTimeout, waitTimeout, refusalTimeout, writeTimeout time.Duration

	checkpointing chan struct{} // held while a checkpoint is made
	hostLogs      *hostlogs.Handler
	shared        singleflight.Group // the measurements under way, which requests share
	podsAnswer    *sharedAnswer
	containers    *runningContainers
	// listening is closed when the socket exists.
	listening chan struct{}
	listens   sync.Once
}

// New returns a server that does not listen yet.
func New(cfg Config, backend Backend, deps Deps) (*Server, error) {
	if cfg.has(configs.PortAPI) && (deps.TLS == nil || deps.Guard == nil) {
		return nil, errors.New("the API's port needs TLS and a guard")
	}
	s := &Server{
		cfg:            cfg,
		backend:        backend,
		deps:           deps,
		log:            deps.Logger,
		listening:      make(chan struct{}),
		began:          time.Now(),
		bodyTimeout:    bodyTimeout,
		waitTimeout:    waitTimeout,
		refusalTimeout: refusalTimeout, writeTimeout: plainTimeout,
		checkpointing: make(chan struct{}, 1),
		podsAnswer:    newSharedAnswer(),
		containers:    newRunningContainers(deps.Runtime, deps.Logger),
		hostLogs:      hostlogs.New(hostlogs.Config{Query: cfg.SystemLogQuery}),
	}
	var err error
	if s.counts, err = newCounts(deps.Metrics.Registry); err != nil {
		return nil, err
	}
	return s, nil
}

// Listening returns a channel that is closed when the socket answers callers.
func (s *Server) Listening() <-chan struct{} { return s.listening }

// Timeouts of connections. That for writing, [plainTimeout], is for what net/http answers by
// itself, such as a malformed request: handlers set their own, and those that last have none (over
// HTTP/2, until they fail), because a followed log may be silent as long as its reader stays. A
// connection of HTTP/2 that takes no byte for as long ends, because it does not take the end of a
// stream, either.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// maxHeader bounds the header of a request to a port, in bytes: anybody may send one, and in
	// memory it may be 40 times as large. Tokens have a few KiB, and so have the commands of exec,
	// which stand in it. maxSocketHeader is for the socket, whose callers may run whole scripts.
	maxHeader       = 16 << 10
	maxSocketHeader = 64 << 10
	// maxConns bounds the connections of one listener. More callers displace those without a request.
	maxConns = 512
	// maxStreams bounds the requests on one connection of HTTP/2. maxFrame and maxUnread bound what
	// the server reads of a connection before a handler wants it, in bytes: a caller need not be
	// known for that. They are the least that HTTP/2 allows.
	maxStreams = 100
	maxFrame   = 16 << 10
	maxUnread  = 64 << 10
	// closeTimeout is how long requests may continue after the context has ended, before their
	// connections are closed.
	closeTimeout = time.Second
)

// headerOf returns how many bytes the header of a request to a listener may have.
func headerOf(l net.Listener) int {
	if _, local := l.(*socket); local {
		return maxSocketHeader
	}
	return maxHeader
}

// serve answers on one listener until ctx ends, with TLS if secure is not nil.
func (s *Server) serve(ctx context.Context, l net.Listener, handler http.Handler, secure *tls.Config) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	tracked := track(l, maxConns)
	var requests inFlight
	if secure != nil {
		secure = auth.RefuseLarge(secure)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !requests.enter() {
				fail(w, http.StatusServiceUnavailable, "the agent is ending")
				return
			}
			defer requests.leave()
			defer endTurn(r.Context())
			defer drop(r)
			defer used(r.Context())()
			handler.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerOf(l),
		WriteTimeout: s.writeTimeout,
		ErrorLog:     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		BaseContext:  func(net.Listener) context.Context { return base },
		ConnContext:  withConn, TLSConfig: secure,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrame,
			MaxReceiveBufferPerConnection: maxUnread, MaxReceiveBufferPerStream: maxUnread, WriteByteTimeout: plainTimeout,
		},
	}
	stop := context.AfterFunc(ctx, func() {
		cancel()
		soon, done := context.WithTimeout(base, 0)
		done()
		_ = server.Shutdown(soon) // closes the listener and idle connections
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
	tracked.closeAll() // the server does not close hijacked connections
	_ = server.Close()
	<-ended
	if errors.Is(err, http.ErrServerClosed) || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serving on %s: %w", l.Addr(), err)
}
