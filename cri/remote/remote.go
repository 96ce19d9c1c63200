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
)

const (
	// DefaultEndpoint is the kubelet's containerRuntimeEndpoint where containerd is installed by a package.
	DefaultEndpoint = "unix:///run/containerd/containerd.sock"
	// DefaultRequestTimeout is the default of KubeletConfiguration.runtimeRequestTimeout.
	DefaultRequestTimeout = 2 * time.Minute
	// maxMessageSize bounds one message in either direction, in bytes. It is the kubelet's: a list of some thousand
	// containers does not fit into gRPC's default of 4 MiB.
	maxMessageSize = 16 << 20
	// maxReconnectDelay is the longest pause between two attempts to reach a runtime that is away.
	maxReconnectDelay = time.Second
	// connectTimeout bounds one attempt: a socket that accepts and then stays silent is unavailable after it.
	connectTimeout = 3 * time.Second
	// maxSocketPath is the longest path the kernel takes for a unix socket (sockaddr_un, less its closing NUL).
	maxSocketPath = 107
)

// Config says which runtime to talk to, and how.
type Config struct {
	// Endpoint is the runtime service's socket, "unix:///path" or an absolute path. Empty is [DefaultEndpoint].
	Endpoint string
	// ImageEndpoint is the image service's socket. Empty is Endpoint.
	ImageEndpoint string
	// RequestTimeout is the deadline of a call whose context has none. Zero is [DefaultRequestTimeout].
	RequestTimeout time.Duration
	// Logger gets what no caller can be told: event streams that start, fall back and break. Nil discards.
	Logger *slog.Logger
	// Observe, where set, is called after every call with the operation's name as in kubelet_runtime_operations' label
	// operation_type, how long it took, and its classified error. It must be quick and safe for concurrent use.
	Observe func(operation string, d time.Duration, err error)
	// Options are added to the connections' own, for instance to trace calls.
	Options []grpc.DialOption
}

// Runtime is a container runtime behind a CRI socket. Make one with [Dial], end it with [Runtime.Close].
type Runtime struct {
	cfg     Config
	conn    *grpc.ClientConn // the runtime service's
	imgConn *grpc.ClientConn // the image service's; the same as conn where there is one socket
	runtime runtimeapi.RuntimeServiceClient
	image   runtimeapi.ImageServiceClient

	streams  sync.WaitGroup
	closing  context.Context // ends on Close; every event stream ends with it
	shutdown context.CancelFunc

	mu     sync.Mutex
	closed bool
	feeds  map[string]feed // by runtime name and version: the kind of event stream it was found to have
	// lookedIn is the begin of the runtime's life in which what earlier ones left has been dealt with.
	lookedIn time.Time
}

var _ cri.Runtime = (*Runtime)(nil)

// Dial prepares the connections; it does not wait for the runtime, which may start later. Its errors are those of the
// configuration (errdefs.IsInvalidArgument) or ctx's own. While nothing answers at the endpoint every call fails at once with an error for
// which errdefs.IsUnavailable is true, and the connection comes back within about a second after the runtime did.
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
		cfg.RequestTimeout = DefaultRequestTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Observe == nil {
		cfg.Observe = func(string, time.Duration, error) {}
	}

	conn, err := connect(cfg.Endpoint, cfg.Options)
	if err != nil {
		return nil, fmt.Errorf("runtime endpoint %q: %w", cfg.Endpoint, err)
	}
	imgConn := conn
	if cfg.ImageEndpoint != cfg.Endpoint {
		if imgConn, err = connect(cfg.ImageEndpoint, cfg.Options); err != nil {
			return nil, errors.Join(fmt.Errorf("image endpoint %q: %w", cfg.ImageEndpoint, err), conn.Close())
		}
	}
	r := &Runtime{
		cfg: cfg, conn: conn, imgConn: imgConn,
		runtime: runtimeapi.NewRuntimeServiceClient(conn),
		image:   runtimeapi.NewImageServiceClient(imgConn),
		feeds:   make(map[string]feed),
	}
	r.closing, r.shutdown = context.WithCancel(context.Background())
	return r, nil
}

// Close ends every event stream, waits for its goroutines, and closes the connections. Calls under way fail as
// cancelled. Closing twice is allowed.
func (r *Runtime) Close() error {
	r.mu.Lock()
	closed := r.closed
	r.closed = true
	r.mu.Unlock()
	r.shutdown()
	if closed {
		r.streams.Wait()
		return nil
	}
	err := r.conn.Close()
	if r.imgConn != r.conn {
		err = errors.Join(err, r.imgConn.Close())
	}
	r.streams.Wait()
	return err
}

// connect returns a lazy connection to a unix socket.
func connect(endpoint string, options []grpc.DialOption) (*grpc.ClientConn, error) {
	path, err := socketPath(endpoint)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{}
	return grpc.NewClient("passthrough:///localhost", append(slices.Clone(options),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.1, MaxDelay: maxReconnectDelay},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize), grpc.MaxCallSendMsgSize(maxMessageSize)),
	)...)
}

// socketPath returns the path of a CRI endpoint, or an invalid-argument error that says what is wrong with it.
func socketPath(endpoint string) (string, error) {
	path, isURL := strings.CutPrefix(endpoint, "unix://")
	switch {
	case !isURL && strings.Contains(endpoint, "://"):
		return "", invalidf("only unix sockets are supported, want unix:///path")
	case !filepath.IsAbs(path):
		return "", invalidf("want unix:///path or an absolute path")
	case len(path) > maxSocketPath:
		return "", invalidf("the path has %d bytes, a unix socket's has at most %d", len(path), maxSocketPath)
	}
	return path, nil
}
