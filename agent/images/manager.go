package images

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/images/credentials"
	"github.com/berthd/berth/agent/images/records"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/notify"
)

// Defaults of [Config].
const (
	// DefaultMaxParallelPulls is berth's own choice: enough pulls to hide one slow registry, few
	// enough not to fill the disk's queue.
	DefaultMaxParallelPulls = 4
	// DefaultBackoffInitial and DefaultBackoffMax are the kubelet's.
	DefaultBackoffInitial = 10 * time.Second
	DefaultBackoffMax     = 300 * time.Second
	// DefaultStallTimeout is below the five minutes after which containerd itself ends a download,
	// with a message that does not say why.
	DefaultStallTimeout = 2 * time.Minute
	// DefaultPullTimeout is long enough for any image over a usable network.
	DefaultPullTimeout = time.Hour
)

// Config is how images are pulled and preloaded. Zero values mean the defaults.
type Config struct {
	// MaxParallelPulls is how many pulls may run at once; negative means no limit.
	MaxParallelPulls int
	// BackoffInitial and BackoffMax limit a pod's back-off after a failed pull. The delay doubles
	// with each failure.
	BackoffInitial, BackoffMax time.Duration
	// StallTimeout is how long a pull may receive no data before it is ended, to be tried again.
	StallTimeout time.Duration
	// PullTimeout is the longest time that a pull may take.
	PullTimeout time.Duration
	// PullsPerSecond is how many pulls may begin per second on average; 0 means no limit. PullBurst
	// is how many of them may begin at once.
	PullsPerSecond float64
	PullBurst      int
	// Pins are the images that the runtime must keep.
	Pins Pins
	// ImagesDir holds the archives (*.tar, *.tar.gz, *.tgz) to import; empty means none.
	ImagesDir string
	// StateFile keeps across restarts which archives were imported. If it is empty, each start
	// imports them again.
	StateFile string
}

// Runtime is what the manager needs of a container runtime.
type Runtime interface {
	// ImageStatus returns nil without an error if the image is not there.
	ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig,
		sandbox *runtimeapi.PodSandboxConfig) (ref string, err error)
	// RemoveImage succeeds if the image is not there.
	RemoveImage(ctx context.Context, spec *runtimeapi.ImageSpec) error
}

// NodeCredentials are the node's own credentials; package credentials has them.
type NodeCredentials interface {
	// Lookup returns the credentials for a pod and a repository, the best first. It may take long.
	// The error is about some of them.
	Lookup(ctx context.Context, pod *v1.Pod, repository string) ([]credentials.Credential, error)
	// PerAccount reports whether the credentials for a repository may depend on the service account
	// of the pod. It is quick.
	PerAccount(repository string) bool
	// Account returns the pod's service account if it has credentials for the repository; otherwise
	// the zero value.
	Account(ctx context.Context, pod *v1.Pod, repository string) credentials.Source
	// State identifies the current credentials. It is quick.
	State() string
}

// noCredentials is a node without credentials.
type noCredentials struct{}

// Lookup returns none.
func (noCredentials) Lookup(context.Context, *v1.Pod, string) ([]credentials.Credential, error) {
	return nil, nil
}

// PerAccount is false.
func (noCredentials) PerAccount(string) bool { return false }

// Account returns none.
func (noCredentials) Account(context.Context, *v1.Pod, string) credentials.Source {
	return credentials.Source{}
}

// State is always the same.
func (noCredentials) State() string { return "" }

// Deps are what the manager needs from other packages.
type Deps struct {
	Runtime Runtime
	// Importer may be nil: archives are then ignored.
	Importer cri.ImageImporter
	// Pinner may be nil: images are then not pinned.
	Pinner cri.ImagePinner
	// Pulls reports the progress of pulls. It is nil or returns an error if the runtime does not
	// report progress.
	Pulls cri.PullReporter
	// Secret returns a pod's pull secret by its name. Nil means that there are none.
	Secret func(pod *v1.Pod, name string) (*v1.Secret, bool)
	// Node has the node's own credentials. Nil means that there are none.
	Node NodeCredentials
	// Records decide who may use an image that is on the node. With nil, every pod may.
	Records *records.Store
	// Events records an event about a pod's container. It must neither block nor call the manager:
	// events of pulls are recorded under the manager's lock, so that they are in order. Nil drops
	// them.
	Events func(pod *v1.Pod, container, eventType, reason, message string)
	// Event records an event about the node. Nil drops it.
	Event func(kind, reason, message string)
	// Wake requests a sync of the pod. Nil does nothing.
	Wake func(podUID types.UID)
	// Pulled is called after each pull that succeeded, with the pods that waited for it, the time
	// at which the pull was queued, and the image's size in bytes. Nil does nothing.
	Pulled func(pods []types.UID, queued time.Time, size uint64)
	// Ensured is called when it is decided how a container gets its image. policy is the pull
	// policy in lower case. present says whether the image is on the node, and pull whether it must
	// be pulled: "true", "false" or "unknown". Nil does nothing.
	Ensured func(policy, present, pull string)
	// Logger may be nil.
	Logger *slog.Logger
}

// Manager provides the node's images. Make it with [New], and run [Manager.Run]: nothing is pulled
// without it.
type Manager struct {
	cfg  Config
	deps Deps

	scan notify.Signal // requests another scan of the images directory
	// operators counts the pulls that operators have asked for.
	operators atomic.Uint64

	mu       sync.Mutex
	run      context.Context // the context of Run; nil if it does not run
	pullers  sync.WaitGroup
	wants    map[wantKey]*want
	backoffs map[backoffKey]*backoff
	pulls    map[pullKey]*pull // queued and under way
	removals map[*removal]bool // under way
	arrivals uint64            // counts the images that came, by a pull or an import
	order    uint64            // counts the pulls, for their order in the queue
	preload  preload
	rate     rate
	// dispatches when the rate lets the next pull begin; nil before the first wait
	paced *time.Timer
	node  nodeWatch
}

// New returns a manager. It pulls nothing until it runs.
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
		scan:     notify.New(),
		wants:    make(map[wantKey]*want),
		backoffs: make(map[backoffKey]*backoff),
		pulls:    make(map[pullKey]*pull),
		removals: make(map[*removal]bool),
		rate:     rate{perSecond: cfg.PullsPerSecond, burst: cfg.PullBurst},
		preload: preload{
			pending:  cfg.ImagesDir != "" && deps.Importer != nil,
			waiters:  make(map[types.UID]bool),
			archives: make(map[string]*Archive),
			arriving: make(arriving),
		},
	}
}

// fill replaces nil dependencies with ones that do nothing.
func fill(deps *Deps) {
	if deps.Secret == nil {
		deps.Secret = func(*v1.Pod, string) (*v1.Secret, bool) { return nil, false }
	}
	if deps.Node == nil {
		deps.Node = noCredentials{}
	}
	if deps.Pulled == nil {
		deps.Pulled = func([]types.UID, time.Time, uint64) {}
	}
	if deps.Ensured == nil {
		deps.Ensured = func(string, string, string) {}
	}
	if deps.Events == nil {
		deps.Events = func(*v1.Pod, string, string, string, string) {}
	}
	deps.Events = eventsOfPods(deps.Events)
	if deps.Event == nil {
		deps.Event = func(string, string, string) {}
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

// SetLimits sets the limits for pulls that begin from now on: how many run at once, and how many
// begin per second; see [Config].
func (m *Manager) SetLimits(cfg Config) {
	m.mu.Lock()
	m.cfg.MaxParallelPulls = cfg.MaxParallelPulls
	m.rate.perSecond, m.rate.burst = cfg.PullsPerSecond, cfg.PullBurst
	m.mu.Unlock()
	m.dispatch()
}

// errRunning is the error of a Run while another one runs.
var errRunning = errors.New("the image manager is running already")

// Run imports the archives, starts the pulls that pods need, and imports archives that come later.
// When ctx ends, Run ends all pulls and waits for them. It does not wake the pods that wait, and a
// pull that was ended this way is forgotten. Run may be called again after it has returned.
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

// ended waits for the pulls at the end of Run.
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

// adoptTimeout limits how long a runtime that hangs delays the first pulls.
const adoptTimeout = 10 * time.Second

// adopt lists the images that are on the node. It passes the list to the records, for pulls whose
// end an earlier run did not see, and it pins the images that the config names.
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

// Tidy removes the pull records of images that no longer exist.
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

// Forget drops all that is known of a pod: its place in queues, its back-offs and its attempts. It
// ends a pull for which no pod waits any more. Forget does nothing if the pod is unknown, or was
// forgotten before.
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
