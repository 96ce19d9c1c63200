package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/internal/classify"
	"github.com/berthd/berth/cri/internal/streams"
)

const (
	// DefaultEndpoint is the kubelet's containerRuntimeEndpoint if a package installed containerd.
	DefaultEndpoint = "unix:///run/containerd/containerd.sock"
	// maxMessageSize limits one message in either direction, in bytes. It is the kubelet's: a list
	// of some thousand containers does not fit into gRPC's default of 4 MiB.
	maxMessageSize = 16 << 20
	// maxReconnectDelay is the longest wait between two attempts to reach a runtime that is away.
	maxReconnectDelay = time.Second
	// connectTimeout limits one attempt. After it, a socket that accepts and then stays silent
	// counts as unavailable.
	connectTimeout = 3 * time.Second
	// maxSocketPath is the longest path that the kernel accepts for a unix socket (sockaddr_un,
	// without its final NUL).
	maxSocketPath = 107
)

// Config says which runtime to use, and how.
type Config struct {
	// Endpoint is the runtime service's socket, "unix:///path" or an absolute path. Empty is
	// [DefaultEndpoint].
	Endpoint string
	// ImageEndpoint is the image service's socket. Empty is Endpoint.
	ImageEndpoint string
	// RequestTimeout is the deadline of a call whose context has none. Zero is
	// [cri.DefaultRequestTimeout].
	RequestTimeout time.Duration
	// Logger gets what no caller learns: event streams that are refused or break. Nil discards.
	Logger *slog.Logger
	// Observe, if set, is called after every call with the operation's name as in the label
	// operation_type of kubelet_runtime_operations, its duration, and its classified error. It must
	// be quick and safe for concurrent use.
	Observe func(operation string, d time.Duration, err error)
	// Options are added to the connections' own, for instance to trace calls.
	Options []grpc.DialOption
}

// Runtime is a container runtime behind a CRI socket. Make it with [Dial], end it with
// [Runtime.Close].
type Runtime struct {
	cfg     Config
	conn    *grpc.ClientConn // the runtime service's
	imgConn *grpc.ClientConn // the image service's; the same as conn if there is one socket
	runtime runtimeapi.RuntimeServiceClient
	image   runtimeapi.ImageServiceClient

	socket  string // path of the runtime service's socket
	streams *streams.Group

	mu     sync.Mutex
	closed bool
	events map[string]support // by runtime name and version: whether it was found to have events
}

var _ cri.Runtime = (*Runtime)(nil)

// Dial prepares the connections. It does not wait for the runtime, which may start later. Its
// errors are those of the configuration (errdefs.IsInvalidArgument) or of ctx. While nobody answers
// at the endpoint, every call fails at once with an error for which errdefs.IsUnavailable is true.
// The connection comes back within about a second after the runtime.
func Dial(ctx context.Context, cfg Config) (*Runtime, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if cfg.Endpoint == "" {
		cfg.Endpoint = DefaultEndpoint
	}
	if cfg.ImageEndpoint == "" {
		cfg.ImageEndpoint = cfg.Endpoint
	}
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = cri.DefaultRequestTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Observe == nil {
		cfg.Observe = func(string, time.Duration, error) {}
	}

	socket, conn, err := connect(cfg.Endpoint, cfg.Options)
	if err != nil {
		return nil, fmt.Errorf("runtime endpoint %q: %w", cfg.Endpoint, err)
	}
	imgConn := conn
	if cfg.ImageEndpoint != cfg.Endpoint {
		if _, imgConn, err = connect(cfg.ImageEndpoint, cfg.Options); err != nil {
			return nil, errors.Join(fmt.Errorf("image endpoint %q: %w", cfg.ImageEndpoint, err), conn.Close())
		}
	}
	return &Runtime{
		cfg: cfg, conn: conn, imgConn: imgConn, socket: socket,
		runtime: runtimeapi.NewRuntimeServiceClient(conn),
		image:   runtimeapi.NewImageServiceClient(imgConn),
		streams: streams.New(),
		events:  make(map[string]support),
	}, nil
}

// Connections returns the gRPC connections to the runtime service and to the image service, which
// are the same if there is one socket. A runtime's other services are reached over them. They end
// with [Runtime.Close].
func (r *Runtime) Connections() (runtime, image *grpc.ClientConn) { return r.conn, r.imgConn }

// Socket returns the path of the runtime service's socket.
func (r *Runtime) Socket() string { return r.socket }

// Close ends every event stream, waits for its goroutines, and closes the connections. Running
// calls fail as cancelled. Closing twice is allowed.
func (r *Runtime) Close() error {
	r.mu.Lock()
	closed := r.closed
	r.closed = true
	r.mu.Unlock()
	r.streams.Close()
	if closed {
		return nil
	}
	err := r.conn.Close()
	if r.imgConn != r.conn {
		err = errors.Join(err, r.imgConn.Close())
	}
	return err
}

// connect returns the path of an endpoint's unix socket, and a lazy connection to it.
func connect(endpoint string, options []grpc.DialOption) (path string, conn *grpc.ClientConn, err error) {
	path, err = socketPath(endpoint)
	if err != nil {
		return "", nil, err
	}
	dialer := net.Dialer{}
	conn, err = grpc.NewClient("passthrough:///localhost", append(slices.Clone(options),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay:  50 * time.Millisecond,
				Multiplier: 1.6,
				Jitter:     0.1,
				MaxDelay:   maxReconnectDelay,
			},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize), grpc.MaxCallSendMsgSize(maxMessageSize)),
	)...)
	return path, conn, err
}

// socketPath returns the path of a CRI endpoint, or an invalid-argument error that says what is
// wrong with it.
func socketPath(endpoint string) (string, error) {
	path, isURL := strings.CutPrefix(endpoint, "unix://")
	switch {
	case !isURL && strings.Contains(endpoint, "://"):
		return "", classify.Invalidf("only unix sockets are supported, want unix:///path")
	case !filepath.IsAbs(path):
		return "", classify.Invalidf("want unix:///path or an absolute path")
	case len(path) > maxSocketPath:
		return "", classify.Invalidf("the path has %d bytes, a unix socket's has at most %d", len(path), maxSocketPath)
	}
	return path, nil
}
