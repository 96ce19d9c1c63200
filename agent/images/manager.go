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

	"github.com/berthd/berth/agent/credentials"
	"github.com/berthd/berth/agent/images/records"
	"github.com/berthd/berth/cri"
)

// Defaults of [Config].
const (
	// DefaultMaxParallelPulls is berth's own: enough to hide one slow registry, few enough not to fill the disk's queue.
	DefaultMaxParallelPulls = 4
	// DefaultBackoffInitial and DefaultBackoffMax are the kubelet's.
	DefaultBackoffInitial = 10 * time.Second
	DefaultBackoffMax     = 300 * time.Second
	// DefaultStallTimeout is below the five minutes after which containerd gives a download up by itself, with a message that does not say why.
	DefaultStallTimeout = 2 * time.Minute
	// DefaultPullTimeout is long enough for any image on a line that is of use.
	DefaultPullTimeout = time.Hour
)

// Config is how images are pulled and preloaded. Zero values mean the defaults.
type Config struct {
	// MaxParallelPulls is how many pulls may run at once; negative means any number.
	MaxParallelPulls int
	// BackoffInitial and BackoffMax bound how long a pod holds off from an image after a failed pull; it doubles each time.
	BackoffInitial, BackoffMax time.Duration
	// StallTimeout is how long nothing may come before a pull is given up, to be tried again.
	StallTimeout time.Duration
	// PullTimeout is after how long a pull is ended.
	PullTimeout time.Duration
	// PullsPerSecond is how many pulls may begin per second on average, 0 for any number; PullBurst is how many of them at once.
	PullsPerSecond float64
	PullBurst      int
	// Pins are the images that the runtime is to keep.
	Pins Pins
	// ImagesDir holds archives (*.tar, *.tar.gz, *.tgz) to import; empty means none.
	ImagesDir string
	// StateFile remembers across restarts which archives were imported; empty means that each start imports them again.
	StateFile string
}

// Runtime is what the manager needs of a container runtime.
type Runtime interface {
	// ImageStatus returns nil without an error where the image is not there.
	ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (ref string, err error)
}

// Importer imports an image archive, pins its images and returns their names; errdefs.IsNotImplemented where the runtime cannot.
type Importer interface {
	Import(ctx context.Context, path string) ([]string, error)
}

// NodeCredentials are the credentials that every pod of the node may use; package credentials has them.
type NodeCredentials interface {
	// Lookup returns those for a repository, the best first; it may take long. The error is about some of them.
	Lookup(ctx context.Context, repository string) ([]credentials.Credential, error)
	// State identifies what they are; it is quick.
	State() string
}

// noCredentials is a node that has none.
type noCredentials struct{}

func (noCredentials) Lookup(context.Context, string) ([]credentials.Credential, error) {
	return nil, nil
}
func (noCredentials) State() string { return "" }

// Deps are the manager's neighbours.
type Deps struct {
	Runtime Runtime
	// Importer may be nil: archives are then left alone.
	Importer Importer
	// Pin has the runtime keep an image; errdefs.IsNotImplemented where it cannot. Nil does nothing.
	Pin func(ctx context.Context, name string) error
	// Progress says how far the pull of an image is that began at since. Nil, or an error, where the runtime cannot say.
	Progress func(ctx context.Context, image string, since time.Time) (cri.PullProgress, error)
	// Secret returns a pod's pull secret by its name. Nil has none.
	Secret func(pod *v1.Pod, name string) (*v1.Secret, bool)
	// Node has the credentials that every pod may use. Nil has none.
	Node NodeCredentials
	// Records says who may use an image that is there; nil lets everybody.
	Records *records.Store
	// Events records an event about a pod's container. It must neither block nor call the manager: those of pulls are recorded under its lock, in the order in which
	// things happen. Nil drops them.
	Events func(pod *v1.Pod, container, eventType, reason, message string)
	// Wake asks for another pass of the pod. Nil does nothing.
	Wake func(podUID types.UID)
	// Pulled is called after each pull, with how long it took, its waiting included, and the image's size in bytes. Nil does nothing.
	Pulled func(took time.Duration, size uint64)
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
	pulls    map[pullKey]*pull // queued and under way
	arrivals uint64            // counts images that came, by pull or import
	order    uint64            // counts pulls, for their order in the queue
	preload  preload
	pace     pace
	paced    *time.Timer // dispatches when the pace lets the next pull begin; nil before the first wait
	node     nodeWatch
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
	fill(&deps)
	return &Manager{
		cfg: cfg, deps: deps,
		kick:     make(chan struct{}, 1),
		wants:    make(map[wantKey]*want),
		backoffs: make(map[backoffKey]*backoff),
		pulls:    make(map[pullKey]*pull),
		pace:     pace{perSecond: cfg.PullsPerSecond, burst: cfg.PullBurst},
		preload:  preload{pending: cfg.ImagesDir != "" && deps.Importer != nil, waiters: make(map[types.UID]bool), archives: make(map[string]*Archive)},
	}
}

// fill puts something that does nothing where a neighbour is missing.
func fill(deps *Deps) {
	if deps.Secret == nil {
		deps.Secret = func(*v1.Pod, string) (*v1.Secret, bool) { return nil, false }
	}
	if deps.Node == nil {
		deps.Node = noCredentials{}
	}
	if deps.Pulled == nil {
		deps.Pulled = func(time.Duration, uint64) {}
	}
	if deps.Events == nil {
		deps.Events = func(*v1.Pod, string, string, string, string) {}
	}
	if deps.Wake == nil {
		deps.Wake = func(types.UID) {}
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
}

func orDefault(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// SetLimits has other bounds count for pulls that begin from now on: how many at once and, by pace, how many in a second; as in [Config].
func (m *Manager) SetLimits(cfg Config) {
	m.mu.Lock()
	m.cfg.MaxParallelPulls = cfg.MaxParallelPulls
	m.pace.perSecond, m.pace.burst = cfg.PullsPerSecond, cfg.PullBurst
	m.mu.Unlock()
	m.dispatch()
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
	if len(m.backoffs) > 0 {
		m.watchNode()
	}
	m.mu.Unlock()
	m.adopt(ctx)
	m.dispatch()
	defer m.ended()
	return m.preloads(ctx)
}

// ended joins the pulls after Run.
func (m *Manager) ended() {
	m.mu.Lock()
	m.run = nil
	for _, timer := range []*time.Timer{m.node.timer, m.paced} {
		if timer != nil {
			timer.Stop()
		}
	}
	m.node.timer = nil
	m.mu.Unlock()
	m.pullers.Wait()
}

// adoptTimeout bounds how long a runtime that hangs keeps the first pulls waiting.
const adoptTimeout = 10 * time.Second

// adopt looks which images are there: the records are told of them, for the pulls that an earlier run did not see to their end, and what the config
// wants kept is pinned.
func (m *Manager) adopt(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	at := time.Now()
	list, err := m.deps.Runtime.ListImages(ctx)
	if err != nil {
		m.deps.Logger.Warn("Could not look which images are there", "err", err)
		return
	}
	if m.deps.Records != nil {
		m.deps.Records.Adopt(list)
		m.deps.Records.Prune(list, at)
	}
	m.pinAll(ctx, list)
}

// Tidy removes the records of pulls whose images are gone.
func (m *Manager) Tidy(ctx context.Context) {
	if m.deps.Records == nil {
		return
	}
	at := time.Now()
	list, err := m.deps.Runtime.ListImages(ctx)
	if err != nil {
		return // it is tried again
	}
	m.deps.Records.Prune(list, at)
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
	for _, p := range m.pulls {
		waited := len(p.waiters)
		for key := range p.waiters {
			if key.pod == podUID {
				delete(p.waiters, key)
			}
		}
		if waited > 0 {
			m.dropUnwanted(p)
		}
	}
	m.mu.Unlock()
	m.dispatch()
}
