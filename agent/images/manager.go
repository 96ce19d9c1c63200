package images

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Defaults of [Config].
const (
	// DefaultMaxParallelPulls is berth's own: enough to hide one slow registry, few enough not to fill the disk's queue.
	DefaultMaxParallelPulls = 4
	// DefaultBackoffInitial and DefaultBackoffMax are the kubelet's.
	DefaultBackoffInitial = 10 * time.Second
	DefaultBackoffMax     = 300 * time.Second
	// DefaultStallTimeout is containerd's own time without progress after which it gives a download up, so a pull that is
	// older is either large or stuck.
	DefaultStallTimeout = 5 * time.Minute
	// DefaultPullTimeout is long enough for any image on a line that is of use.
	DefaultPullTimeout = time.Hour
)

// Config is how images are pulled and preloaded. Zero values mean the defaults.
type Config struct {
	// MaxParallelPulls is how many pulls may run at once; negative means any number.
	MaxParallelPulls int
	// BackoffInitial and BackoffMax bound how long a pod holds off from an image after a failed pull; it doubles each time.
	BackoffInitial, BackoffMax time.Duration
	// StallTimeout is after how long a pull gives up its place among the parallel ones. It goes on.
	StallTimeout time.Duration
	// PullTimeout is after how long a pull is ended.
	PullTimeout time.Duration
	// ImagesDir holds archives (*.tar, *.tar.gz, *.tgz) to import; empty means none.
	ImagesDir string
	// StateFile remembers across restarts which archives were imported; empty means that each start imports them again.
	StateFile string
}

// Runtime is what the manager needs of a container runtime.
type Runtime interface {
	// ImageStatus returns nil without an error where the image is not there.
	ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (ref string, err error)
}

// Importer imports an image archive, pins its images and returns their names; errdefs.IsNotImplemented where the runtime cannot.
type Importer interface {
	Import(ctx context.Context, path string) ([]string, error)
}

// Deps are the manager's neighbours.
type Deps struct {
	Runtime Runtime
	// Importer may be nil: archives are then left alone.
	Importer Importer
	// Events records an event about a pod's container. Nil drops them.
	Events func(pod *v1.Pod, container, eventType, reason, message string)
	// Wake asks for another pass of the pod. Nil does nothing.
	Wake func(podUID types.UID)
	// Logger may be nil.
	Logger *slog.Logger
}

// Manager has the node's images. Make it with [New], and run [Manager.Run], without which nothing is pulled.
type Manager struct {
	cfg  Config
	deps Deps

	kick chan struct{} // asks Run for another look at the images directory

	mu       sync.Mutex
	run      context.Context // Run's, while it runs; nil otherwise
	pullers  sync.WaitGroup
	wants    map[wantKey]*want
	backoffs map[backoffKey]*backoff
	pulls    map[string]*pull // by full name: queued and under way
	arrivals uint64           // counts images that came, by pull or import
	order    uint64           // counts pulls, for their order in the queue
	preload  preload
}

// New returns a manager that pulls nothing until it runs.
func New(cfg Config, deps Deps) *Manager {
	if cfg.MaxParallelPulls == 0 {
		cfg.MaxParallelPulls = DefaultMaxParallelPulls
	}
	cfg.BackoffInitial = orDefault(cfg.BackoffInitial, DefaultBackoffInitial)
	cfg.BackoffMax = max(orDefault(cfg.BackoffMax, DefaultBackoffMax), cfg.BackoffInitial)
	cfg.StallTimeout = orDefault(cfg.StallTimeout, DefaultStallTimeout)
	cfg.PullTimeout = orDefault(cfg.PullTimeout, DefaultPullTimeout)
	if deps.Events == nil {
		deps.Events = func(*v1.Pod, string, string, string, string) {}
	}
	if deps.Wake == nil {
		deps.Wake = func(types.UID) {}
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	return &Manager{
		cfg: cfg, deps: deps,
		kick:     make(chan struct{}, 1),
		wants:    make(map[wantKey]*want),
		backoffs: make(map[backoffKey]*backoff),
		pulls:    make(map[string]*pull),
		preload:  preload{pending: cfg.ImagesDir != "" && deps.Importer != nil, waiters: make(map[types.UID]bool), archives: make(map[string]*Archive)},
	}
}

func orDefault(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// errRunning is what a second Run beside the first gets.
var errRunning = errors.New("the image manager is running already")

// Run imports the archives, starts pulls as they are asked for, and imports archives that come later, until ctx ends; it then ends all pulls and
// waits for them. Pods that wait are not told; a pull that was ended this way counts as never made. It may run again afterwards.
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.run != nil {
		m.mu.Unlock()
		return errRunning
	}
	m.run = ctx
	m.mu.Unlock()
	m.dispatch()
	defer func() {
		m.mu.Lock()
		m.run = nil
		m.mu.Unlock()
		m.pullers.Wait()
	}()
	return m.preloads(ctx)
}

// Forget drops all that is known of a pod: its place in queues, its back-offs, its attempts. A pull that nobody waits for any more is
// ended. Forgetting twice, or what was never known, does nothing.
func (m *Manager) Forget(podUID types.UID) {
	m.mu.Lock()
	for key := range m.wants {
		if key.pod == podUID {
			delete(m.wants, key)
		}
	}
	for key := range m.backoffs {
		if key.pod == podUID {
			delete(m.backoffs, key)
		}
	}
	delete(m.preload.waiters, podUID)
	for name, p := range m.pulls {
		waited := len(p.waiters)
		for key := range p.waiters {
			if key.pod == podUID {
				delete(p.waiters, key)
			}
		}
		if waited > 0 && len(p.waiters) == 0 {
			delete(m.pulls, name)
			p.abandon()
		}
	}
	m.mu.Unlock()
	m.dispatch()
}
