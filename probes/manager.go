package probes

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// defaultParallelExecs is how many exec probes may be under way on the node at once. A runtime on few cores slows down for
// everybody beyond that.
const defaultParallelExecs = 16

// Config is what an administrator can choose. The zero value works.
type Config struct {
	// UserAgent is sent by HTTP and gRPC probes; "kube-probe/1.36" where empty.
	UserAgent string
	// MaxParallelExecs bounds the exec probes under way at once; 16 where zero. A probe waits for its turn up to its period.
	MaxParallelExecs int
	// DenyLinkLocal refuses probes to link-local addresses, such as a cloud's metadata service.
	DenyLinkLocal bool
}

// Deps is what probing needs from others. Exec is required where containers have exec probes; the rest may be nil.
type Deps struct {
	// Exec runs a command in a container.
	Exec ExecFunc
	// Alive returns nil where the runtime behind Exec answers other calls now. It is asked when an exec got no answer in time, which says
	// nothing about the container while the runtime itself is silent. It must return soon after ctx ends; nil means that it always answers.
	Alive func(ctx context.Context) error
	// OnChange is called after a probe has changed a pod's [Manager.Results], never from within Sync. It must not block.
	OnChange func(uid types.UID)
	// Events records an event about a container of a pod; reasons are Unhealthy and ProbeWarning. It must not block.
	Events func(pod *v1.Pod, container, eventType, reason, message string)
	// Observe takes the measurements of every probe that ran. It must not block nor call the Manager, and is not called for a
	// pod after [Manager.Stop] has returned, so that the pod's series can be dropped then.
	Observe func(Observation)
	Logger  *slog.Logger
}

// Target is a running container that is to be probed.
type Target struct {
	// Name is the container's name in the pod's spec. App containers and init containers are looked up; others are ignored.
	Name string
	// ContainerID tells runs of the container apart, and is what Exec gets.
	ContainerID string
	// StartedAt is when this run started; zero where the runtime does not say.
	StartedAt time.Time
	// Terminating says that the container is being stopped: its liveness and startup probes end, readiness goes on.
	Terminating bool
}

// Snapshot is what an earlier agent knew of a pod's containers, by container name. It is made for JSON.
type Snapshot map[string]Result

// Manager probes the containers of all pods. Make it with [New], give it life with [Manager.Run].
type Manager struct {
	deps       Deps
	log        *slog.Logger
	prober     *prober
	agentStart time.Time
	jitter     func(time.Duration) time.Duration

	// mu guards everything below.
	mu   sync.Mutex
	pods map[types.UID]*podBook
	// base is Run's context and the parent of every worker; nil before Run.
	base context.Context //nolint:containedctx // Workers are started by Sync, but are Run's children.
	// closed is set when Run ends: no worker is started after that.
	closed bool
	// workers counts the goroutines that Run joins.
	workers sync.WaitGroup
}

// podBook is what the Manager knows of a pod. pod and ip are the newest that Sync was given.
type podBook struct {
	pod  *v1.Pod
	ip   string
	runs map[string]*run
	// restored holds results of an earlier agent for containers that were not synced yet.
	restored Snapshot
}

// run is one run of one container.
type run struct {
	target    Target
	container *v1.Container
	health    *health
	workers   map[Kind]*worker
}

// New returns a Manager that probes nothing yet. Containers that started before this moment count as taken over from an
// earlier agent.
func New(cfg Config, deps Deps) *Manager {
	if cfg.UserAgent == "" {
		cfg.UserAgent = "kube-probe/1.36"
	}
	if cfg.MaxParallelExecs <= 0 {
		cfg.MaxParallelExecs = defaultParallelExecs
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Exec == nil {
		deps.Exec = func(context.Context, string, []string, time.Duration) (int, []byte, error) {
			return 0, nil, errors.New("exec is not available")
		}
	}
	if deps.Alive == nil {
		deps.Alive = func(context.Context) error { return nil }
	}
	return &Manager{
		deps: deps,
		log:  deps.Logger,
		prober: &prober{
			userAgent: cfg.UserAgent,
			transport: NewHTTPTransport(cfg.DenyLinkLocal),
			dialers:   dialers{cfg.DenyLinkLocal},
			execs:     newExecs(deps.Exec, deps.Alive, cfg.MaxParallelExecs),
		},
		agentStart: time.Now(),
		jitter:     func(d time.Duration) time.Duration { return time.Duration(rand.Float64() * float64(d)) }, //nolint:gosec // No secret.
		pods:       map[types.UID]*podBook{},
	}
}

// Run lets the workers live until ctx ends, then stops and joins them and returns nil. Pods synced before are probed from now on.
// A second call is an error.
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.base != nil {
		m.mu.Unlock()
		return errors.New("run probes: already run")
	}
	m.base = ctx
	for _, pod := range m.pods {
		for _, r := range pod.runs {
			m.reconcile(pod, r)
		}
	}
	m.mu.Unlock()

	<-ctx.Done()
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.workers.Wait()
	return nil
}

// Sync says which containers of a pod are running now. It starts the probes of those that are new (a new ContainerID is a new
// run), keeps the others going, and forgets the containers that running does not have. It never blocks, and saying the same
// again costs next to nothing. pod is kept and must not be changed afterwards; podIP may be empty until it is known.
func (m *Manager) Sync(pod *v1.Pod, podIP string, running []Target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	book := m.book(pod.UID)
	book.pod, book.ip = pod, podIP
	for name, r := range book.runs {
		if !isRunning(running, name, r.target.ContainerID) {
			r.stop()
			delete(book.runs, name)
		}
	}
	for _, target := range running {
		r := book.runs[target.Name]
		if r == nil {
			if r = newRun(pod, target); r == nil {
				continue
			}
			r.health.restore(book.restored[target.Name])
			delete(book.restored, target.Name)
			book.runs[target.Name] = r
		}
		r.health.terminating = target.Terminating
		m.reconcile(book, r)
	}
}

// Results returns the results of the pod's running containers by container name; empty for a pod that is not known.
func (m *Manager) Results(uid types.UID) map[string]Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	book := m.pods[uid]
	if book == nil {
		return map[string]Result{}
	}
	results := make(map[string]Result, len(book.runs))
	for name, r := range book.runs {
		results[name] = r.health.result()
	}
	return results
}

// Stop forgets a pod and cancels its probes without waiting for them. Whatever they still say is dropped.
func (m *Manager) Stop(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if book := m.pods[uid]; book != nil {
		for _, r := range book.runs {
			r.stop()
		}
		delete(m.pods, uid)
	}
}

// Snapshot returns what a later agent needs to go on with the pod's containers where this one stopped: the pod's Results, and
// what was restored for containers that were not synced yet.
func (m *Manager) Snapshot(uid types.UID) Snapshot {
	snapshot := Snapshot(m.Results(uid))
	m.mu.Lock()
	defer m.mu.Unlock()
	if book := m.pods[uid]; book != nil {
		for name, old := range book.restored {
			if _, ok := snapshot[name]; !ok {
				snapshot[name] = old
			}
		}
	}
	return snapshot
}

// Restore takes over the Snapshot of an earlier agent: a container that still has the same ID starts with those results.
// Call it before the pod's first Sync; it has no effect on containers already synced.
func (m *Manager) Restore(uid types.UID, snapshot Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.book(uid).restored = maps.Clone(snapshot)
}

// book returns the pod's book, opened where there was none. The caller holds mu.
func (m *Manager) book(uid types.UID) *podBook {
	book := m.pods[uid]
	if book == nil {
		book = &podBook{runs: map[string]*run{}}
		m.pods[uid] = book
	}
	return book
}

// reconcile starts the workers that the run's health wants and stops those that it does not. The caller holds mu.
func (m *Manager) reconcile(book *podBook, r *run) {
	if m.base == nil || m.closed {
		return
	}
	for _, kind := range kinds {
		w, wanted := r.workers[kind], r.health.wants(kind)
		switch {
		case wanted && w == nil:
			r.workers[kind] = m.startWorker(book, r, kind)
		case !wanted && w != nil:
			w.cancel()
			delete(r.workers, kind)
		}
	}
}

// newRun returns the state of a container that was not seen running before, nil where the pod's spec does not have it.
func newRun(pod *v1.Pod, target Target) *run {
	container, finite := findContainer(&pod.Spec, target.Name)
	if container == nil {
		return nil
	}
	return &run{
		target:    target,
		container: container,
		health:    newHealth(container, target.ContainerID, finite),
		workers:   map[Kind]*worker{},
	}
}

// stop cancels the run's workers. The caller holds the Manager's mu.
func (r *run) stop() {
	for kind, w := range r.workers {
		w.cancel()
		delete(r.workers, kind)
	}
}

// findContainer returns the app or init container of that name, and whether it is an init container that is to end.
func findContainer(spec *v1.PodSpec, name string) (container *v1.Container, finite bool) {
	for i := range spec.Containers {
		if c := &spec.Containers[i]; c.Name == name {
			return c, false
		}
	}
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; c.Name == name {
			return c, c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways
		}
	}
	return nil, false
}

// isRunning tells whether that run of the container is among the targets.
func isRunning(targets []Target, name, id string) bool {
	for _, t := range targets {
		if t.Name == name && t.ContainerID == id {
			return true
		}
	}
	return false
}
