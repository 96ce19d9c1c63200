package containerd

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/internal/streams"
)

const (
	// runtimeName is the name of containerd's CRI plugin in Version.
	runtimeName = "containerd"
	// criNamespace is the containerd namespace that its CRI plugin works in.
	criNamespace = "k8s.io"
	// namespaceHeader is the gRPC header that carries a containerd namespace.
	namespaceHeader = "containerd-namespace"
)

// Connection is a CRI runtime and the connections to it. cri/remote has one.
type Connection interface {
	cri.Runtime
	// Connections returns the gRPC connections to the runtime service and to the image service;
	// they may be the same.
	Connections() (runtime, image *grpc.ClientConn)
	// Socket returns the path of the runtime service's socket.
	Socket() string
}

// Config says how containerd's own services are used. The zero value means the defaults.
type Config struct {
	// RequestTimeout is the deadline of a call whose context has none. Zero is
	// [cri.DefaultRequestTimeout].
	RequestTimeout time.Duration
	// Logger gets what no caller learns: what was repaired, and event streams that break. Nil
	// discards.
	Logger *slog.Logger
	// Observe, if set, is called after every operation with its name as in the label operation_type
	// of kubelet_runtime_operations, its duration, and its classified error. It must be quick and
	// safe for concurrent use.
	Observe func(operation string, d time.Duration, err error)
}

// Runtime is a containerd, used by its CRI and by its own services. Make one with [New], end it
// with [Runtime.Close].
type Runtime struct {
	cri.Runtime // by the CRI alone
	cfg         Config
	conn        *grpc.ClientConn // to the services beside the CRI's runtime service
	imageConn   *grpc.ClientConn // to the services beside the CRI's image service
	socket      string
	streams     *streams.Group

	mu sync.Mutex
	// repairedIn is the start of that life of containerd in which all that earlier lives had left
	// was removed.
	repairedIn time.Time
}

var (
	_ cri.Runtime         = (*Runtime)(nil)
	_ cri.ImageImporter   = (*Runtime)(nil)
	_ cri.ImagePinner     = (*Runtime)(nil)
	_ cri.PullReporter    = (*Runtime)(nil)
	_ cri.Repairer        = (*Runtime)(nil)
	_ cri.ForgottenFinder = (*Runtime)(nil)
)

// New returns the containerd behind a connection. The caller closes the connection after
// [Runtime.Close]. New makes no call: containerd may start later.
func New(cfg Config, connection Connection) *Runtime {
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = cri.DefaultRequestTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Observe == nil {
		cfg.Observe = func(string, time.Duration, error) {}
	}
	r := &Runtime{Runtime: connection, cfg: cfg, socket: connection.Socket(), streams: streams.New()}
	r.conn, r.imageConn = connection.Connections()
	return r
}

// Close ends every event stream and waits for its goroutines. It leaves the connection open.
// Closing twice is allowed.
func (r *Runtime) Close() { r.streams.Close() }

// Capabilities returns what containerd does beyond the CRI.
func (r *Runtime) Capabilities() cri.Capabilities {
	return cri.Capabilities{Importer: r, Pinner: r, Pulls: r, Repairer: r, Forgotten: r}
}

// withNamespace returns a context whose calls of containerd's services are about the CRI's objects.
func withNamespace(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, namespaceHeader, criNamespace)
}
