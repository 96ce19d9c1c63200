package native

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cni"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/internal/streams"
	"github.com/berthd/berth/cri/native/images"
	"github.com/berthd/berth/cri/native/nri"
	"github.com/berthd/berth/internal/flock"
)

const (
	// runtimeName is the name in Version.
	runtimeName = "berth"
	// apiVersion is the version of the CRI.
	apiVersion = "v1"
	// undoTimeout bounds the undo of what a caller began and gave up.
	undoTimeout = 2 * time.Minute
)

// Config says how sandboxes and containers are made. Zero values mean the defaults, but Containerd,
// Namespace, Network, PauseImage, RootDir and StateDir must be set.
type Config struct {
	// Containerd is the path of containerd's socket.
	Containerd string
	// Namespace is the containerd namespace that everything is in. Nobody else may use it.
	Namespace string
	// Images says how images are pulled.
	Images images.Config
	// Network attaches sandboxes. The caller may share it.
	Network *cni.Network
	// Pause says when a sandbox has a pause process. Default [PauseAuto].
	Pause PauseMode
	// PauseImage is the image of pause processes. It is pulled if it is missing.
	PauseImage string
	// Handlers are the OCI runtimes by name. The empty name is the default; without one it is runc.
	Handlers map[string]Handler
	// CDISpecDirs have the specs of CDI devices; a later directory overrides an earlier one. Default
	// is /etc/cdi and /var/run/cdi.
	CDISpecDirs []string
	// SystemdCgroups says that systemd makes the cgroups, not the OCI runtime itself.
	SystemdCgroups bool
	// RootDir has the records, and the volumes that images declare. It outlives a restart of the
	// machine.
	RootDir string
	// StateDir has what a restart of the machine takes: files and pipes of sandboxes and containers,
	// and mounts. Its file system must allow mounts and pipes.
	StateDir string
	// StreamAddress is where Exec, Attach and PortForward are served. Default "127.0.0.1:0".
	StreamAddress string
	// RequestTimeout is the deadline of a call whose context has none. Default
	// [cri.DefaultRequestTimeout].
	RequestTimeout time.Duration
	// Version is the version in Version.
	Version string
	// Logger gets what no caller learns. Nil discards.
	Logger *slog.Logger
	// NoSwapLimits says that the machine's cgroups do not count swap: the limits that NRI plugins
	// want for it are left out.
	NoSwapLimits bool
	// NRI is where NRI plugins come from. Nil for none.
	NRI *nri.Config
}

// Handler is an OCI runtime, run by containerd's runc shim.
type Handler struct {
	// Binary is the program. Default is the shim's own: runc.
	Binary string
	// Root is the program's directory of states. Default is the shim's own.
	Root string
}

// Runtime is the CRI's runtime and image service. Make one with [New], end it with [Runtime.Close].
type Runtime struct {
	*images.Service
	cfg     Config
	client  *client.Client
	store   *store
	selinux selinux
	// groups has the event streams, and the goroutines that watch processes.
	groups *streams.Group
	events broadcaster
	stream streamServer
	// plugins are the NRI plugins, nil if the config has none.
	plugins *nri.Plugins
	// handlers are the OCI runtimes with what they can do.
	handlers []*runtimeapi.RuntimeHandler
	// closing ends on Close, and with it what watches processes and copies their output.
	closing context.Context //nolint:containedctx // the life of the runtime's own goroutines
	close   context.CancelFunc
}

var (
	_ cri.Runtime       = (*Runtime)(nil)
	_ cri.ImageImporter = (*Runtime)(nil)
	_ cri.ImagePinner   = (*Runtime)(nil)
	_ cri.PullReporter  = (*Runtime)(nil)
)

// New returns the runtime of a containerd namespace, and looks what of the recorded sandboxes and
// containers still runs. If there are records, containerd must answer; otherwise it may come later.
// New also removes what containerd and the network have of pods without a record, as a power loss
// may leave them, and what an earlier process of berth has kept from containerd's garbage
// collection.
func New(ctx context.Context, cfg Config) (*Runtime, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if err := keepPrivate(cfg.StateDir); err != nil {
		return nil, err
	}
	kept, err := newStore(cfg.RootDir)
	if err != nil {
		return nil, err
	}
	cfg.Images.Alone = true // the store has the lock
	containerd, err := client.New(cfg.Containerd, client.WithDefaultNamespace(cfg.Namespace))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reach containerd at %s: %w", cfg.Containerd, err), flock.Release(kept.lock))
	}
	r := &Runtime{
		Service: images.New(cfg.Images, containerd), cfg: cfg, client: containerd, store: kept, groups: streams.New(),
		selinux: nodeSELinux(), events: broadcaster{boxes: map[*streams.Mailbox]bool{}},
	}
	r.handlers = r.askHandlers(ctx)
	r.closing, r.close = context.WithCancel(namespaces.WithNamespace(context.Background(), cfg.Namespace))
	if err := errors.Join(r.preparePlugins(), r.stream.start(r, cfg.StreamAddress)); err != nil {
		r.Close()
		return nil, err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	if err := r.restore(ctx); err != nil {
		r.Close()
		return nil, err
	}
	if err := r.startPlugins(ctx); err != nil {
		r.Close()
		return nil, err
	}
	if err := errors.Join(r.endLostShims(ctx), r.removeForgotten(ctx), r.EndLeases(ctx)); err != nil {
		cfg.Logger.Warn("what an earlier process has left could not be removed yet: the next start tries again", "error", err)
	}
	return r, nil
}

// keepPrivate makes a directory to which only root has access: in it is the shared memory of pods,
// to which all users of their containers may write.
// A directory that has something else in it, which a mistake may name, stays as it is.
func keepPrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("native runtime: make the directory of its state: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("native runtime: read the directory of its state: %w", err)
	}
	for _, e := range entries {
		if !slices.Contains([]string{"containers", "netns", "sandboxes", "volumes"}, e.Name()) {
			return nil
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("native runtime: keep others from its state: %w", err)
	}
	return nil
}

// complete checks a config and sets its defaults.
func (cfg *Config) complete() error {
	if cfg.Network == nil || slices.Contains(
		[]string{cfg.Containerd, cfg.PauseImage, cfg.RootDir, cfg.StateDir, cfg.Namespace}, "") {
		return errors.New("native runtime: containerd, a namespace, a network, a pause image and two directories " +
			"are needed")
	}
	switch cfg.Pause {
	case "":
		cfg.Pause = PauseAuto
	case PauseAuto, PauseAlways, PauseNever:
	default:
		return fmt.Errorf("native runtime: the pause mode is %q, and must be %s, %s or %s", cfg.Pause, PauseAuto,
			PauseAlways, PauseNever)
	}
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = cri.DefaultRequestTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.StreamAddress == "" {
		cfg.StreamAddress = "127.0.0.1:0"
	}
	if ref, err := reference.ParseDockerRef(cfg.PauseImage); err == nil {
		cfg.Images.Keep = ref.String() // no pod may need it now, and the next one does
	}
	return nil
}

// Close ends the event streams, the pulls, and the streams of Exec, Attach and PortForward, and
// waits for everything that it has started. Containers run on. Closing twice is allowed.
func (r *Runtime) Close() {
	r.close()
	r.stream.stop()
	r.store.closeInputs()
	r.groups.Close()
	r.plugins.Close()
	r.store.closeIO()
	r.Service.Close()
	_ = r.client.Close()
	_ = flock.Release(r.store.lock)
}

// bounded returns a context for calls of containerd, with a deadline.
func (r *Runtime) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = namespaces.WithNamespace(ctx, r.cfg.Namespace)
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, r.cfg.RequestTimeout)
}

// undoing returns a context for an undo, which must not end when the caller gives up.
func undoing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
}

// sandboxDir is the directory of a sandbox's files and mounts.
func (r *Runtime) sandboxDir(id string) string { return filepath.Join(r.cfg.StateDir, "sandboxes", id) }

// containerDir is the directory of a container's pipes.
func (r *Runtime) containerDir(id string) string {
	return filepath.Join(r.cfg.StateDir, "containers", id)
}

// RuntimeConfig implements [cri.Runtime].
func (r *Runtime) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	driver := runtimeapi.CgroupDriver_CGROUPFS
	if r.cfg.SystemdCgroups {
		driver = runtimeapi.CgroupDriver_SYSTEMD
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// UpdateRuntimeConfig implements [cri.Runtime]. Networks have their own configuration, so the range
// of the pods' addresses changes nothing.
func (r *Runtime) UpdateRuntimeConfig(context.Context, *runtimeapi.RuntimeConfig) error { return nil }

// broadcaster sends events to every stream.
type broadcaster struct {
	mu    sync.Mutex
	boxes map[*streams.Mailbox]bool
}

func (b *broadcaster) put(e cri.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for box := range b.boxes {
		box.Put(e)
	}
}

// Events implements [cri.Runtime].
func (r *Runtime) Events(ctx context.Context) (<-chan cri.Event, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	subscribed := make(chan struct{})
	read := func(ctx context.Context, box *streams.Mailbox) error {
		r.events.mu.Lock()
		r.events.boxes[box] = true
		r.events.mu.Unlock()
		close(subscribed)
		<-ctx.Done()
		r.events.mu.Lock()
		defer r.events.mu.Unlock()
		delete(r.events.boxes, box)
		return ctx.Err()
	}
	stands := func(ctx context.Context, _ <-chan error) error {
		select {
		case <-subscribed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return r.groups.Open(ctx, read, stands)
}

// emit says that something about a sandbox or a container changed.
func (r *Runtime) emit(kind cri.EventType, id, uid string) {
	r.events.put(cri.Event{Type: kind, ID: id, PodUID: uid, Time: time.Now()})
}

// streamServer serves Exec, Attach and PortForward; see stream.go.
type streamServer struct {
	streaming interface {
		http.Handler
		GetExec(req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error)
		GetAttach(req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error)
		GetPortForward(req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error)
	}
	http     *http.Server
	serving  sync.WaitGroup
	left     leftCommands
	forwards forwards
}

// notFound says that there is nothing with an ID.
func notFound(kind, id string) error { return fmt.Errorf("%s %s: %w", kind, id, errdefs.ErrNotFound) }
