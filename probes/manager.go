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

	"github.com/berthd/berth/internal/pods"
)

// defaultParallelExecs is how many exec probes may run on the node at the same time. With more, a
// runtime on few cores gets slower for everybody.
const defaultParallelExecs = 16

// Config has the settings of an administrator. The zero value works.
type Config struct {
	// UserAgent is sent by HTTP and gRPC probes. If empty, it is "kube-probe/1.36".
	UserAgent string
	// MaxParallelExecs limits the exec probes that run at the same time; 0 means 16. A probe waits
	// for its turn at most for its period.
	MaxParallelExecs int
	// DenyLinkLocal refuses probes to link-local addresses, such as a cloud's metadata service.
	DenyLinkLocal bool
}

// Deps are what the Manager needs from others. Exec is required if containers have exec probes; all
// others may be nil.
type Deps struct {
	// Exec runs a command in a container.
	Exec ExecFunc
	// Alive returns nil if the runtime behind Exec answers other calls now. It is called when an
	// exec got no answer in time: if the whole runtime is silent, this says nothing about the
	// container. It must return soon after ctx ends. A nil func means that the runtime always
	// answers.
	Alive func(ctx context.Context) error
	// OnChange is called after a probe has changed a pod's [Manager.Results], but never from within
	// Sync. It must not block.
	OnChange func(uid types.UID)
	// Events records an event about a container of a pod. The reasons are Unhealthy and
	// ProbeWarning. It must not block.
	Events func(pod *v1.Pod, container, eventType, reason, message string)
	// Observe gets the measurements of every probe that ran. It must not block or call the Manager.
	// It is not called for a pod after [Manager.Stop] has returned, so that the caller can then
	// drop the pod's series.
	Observe func(Observation)
	Logger  *slog.Logger
}

// Target is a running container to be probed.
type Target struct {
	// Name is the container's name in the pod's spec. App containers and init containers are found;
	// other containers are ignored.
	Name string
	// ContainerID identifies the run of the container. Exec gets it.
	ContainerID string
	// StartedAt is the start of this run; zero if the runtime does not report it.
	StartedAt time.Time
	// Terminating says that the container is being stopped. Its liveness and startup probes end;
	// its readiness probe continues.
	Terminating bool
}

// Snapshot is what an earlier agent knew about a pod's containers, by container name. It is stored
// as JSON.
type Snapshot map[string]Result

// Manager probes the containers of all pods. Make it with [New] and start it with [Manager.Run].
type Manager struct {
	deps       Deps
	log        *slog.Logger
	prober     *prober
	agentStart time.Time
	jitter     func(time.Duration) time.Duration

	// mu guards all fields below.
	mu   sync.Mutex
	pods map[types.UID]*podState
	// base is Run's context and the parent of every worker; nil before Run.
	base context.Context //nolint:containedctx // Workers are started by Sync, but are Run's children.
	// closed is set when Run ends. After that no worker starts.
	closed bool
	// workers counts the goroutines that Run joins.
	workers sync.WaitGroup
}

// podState is what the Manager knows about a pod. pod and ip are those of the last Sync.
type podState struct {
	pod  *v1.Pod
	ip   string
	runs map[string]*run
	// restored has the results of an earlier agent for containers without a Sync so far.
	restored Snapshot
}

// run is one run of one container.
type run struct {
	target    Target
	container *v1.Container
	health    *health
	workers   map[Kind]*worker
}

// New returns a Manager that does not probe yet. Containers that started before this moment count
// as taken over from an earlier agent.
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
		jitter: func(d time.Duration) time.Duration {
			return time.Duration(rand.Float64() * float64(d))
		}, //nolint:gosec // No secret.
		pods: map[types.UID]*podState{},
	}
}

// Run runs the workers until ctx ends, then stops and joins them and returns nil. Pods that were
// synced before are probed from now on. A second call is an error.
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

// Sync sets which containers of a pod run now. It starts the probes of new ones (a new ContainerID
// is a new run), continues the others, and removes containers that are not in running. It never
// blocks, and a call without changes is cheap. pod is kept and must not be changed afterwards.
// podIP may be empty until it is known.
func (m *Manager) Sync(pod *v1.Pod, podIP string, running []Target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.podState(pod.UID)
	state.pod, state.ip = pod, podIP
	for name, r := range state.runs {
		if !isRunning(running, name, r.target.ContainerID) {
			r.stop()
			delete(state.runs, name)
		}
	}
	for _, target := range running {
		r := state.runs[target.Name]
		if r == nil {
			if r = newRun(pod, target); r == nil {
				continue
			}
			r.health.restore(state.restored[target.Name])
			delete(state.restored, target.Name)
			state.runs[target.Name] = r
		}
		r.health.terminating = target.Terminating
		m.reconcile(state, r)
	}
}

// Results returns the results of the pod's running containers by container name. It is empty for an
// unknown pod.
func (m *Manager) Results(uid types.UID) map[string]Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.pods[uid]
	if state == nil {
		return map[string]Result{}
	}
	results := make(map[string]Result, len(state.runs))
	for name, r := range state.runs {
		results[name] = r.health.result()
	}
	return results
}

// Stop removes a pod and cancels its probes. It does not wait for them, and their results are
// ignored.
func (m *Manager) Stop(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if state := m.pods[uid]; state != nil {
		for _, r := range state.runs {
			r.stop()
		}
		delete(m.pods, uid)
	}
}

// Snapshot returns what a later agent needs to continue with the pod's containers: the pod's
// Results, and the restored results of containers without a Sync so far.
func (m *Manager) Snapshot(uid types.UID) Snapshot {
	snapshot := Snapshot(m.Results(uid))
	m.mu.Lock()
	defer m.mu.Unlock()
	if state := m.pods[uid]; state != nil {
		for name, old := range state.restored {
			if _, ok := snapshot[name]; !ok {
				snapshot[name] = old
			}
		}
	}
	return snapshot
}

// Restore takes over the Snapshot of an earlier agent: a container that still has the same ID
// starts with those results. Call it before the pod's first Sync. It has no effect on containers
// that were synced already.
func (m *Manager) Restore(uid types.UID, snapshot Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.podState(uid).restored = maps.Clone(snapshot)
}

// podState returns the state of a pod, and makes it if there is none. The caller holds mu.
func (m *Manager) podState(uid types.UID) *podState {
	state := m.pods[uid]
	if state == nil {
		state = &podState{runs: map[string]*run{}}
		m.pods[uid] = state
	}
	return state
}

// reconcile starts the workers that the run's health wants and stops the others. The caller holds
// mu.
func (m *Manager) reconcile(state *podState, r *run) {
	if m.base == nil || m.closed {
		return
	}
	for _, kind := range kinds {
		w, wanted := r.workers[kind], r.health.wants(kind)
		switch {
		case wanted && w == nil:
			r.workers[kind] = m.startWorker(state, r, kind)
		case !wanted && w != nil:
			w.cancel()
			delete(r.workers, kind)
		}
	}
}

// newRun returns the state of a container that was not running before, or nil if the pod's spec
// does not have it.
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

// findContainer returns the app or init container of that name, and whether it is an init container
// that is to end.
func findContainer(spec *v1.PodSpec, name string) (container *v1.Container, finite bool) {
	for i := range spec.Containers {
		if c := &spec.Containers[i]; c.Name == name {
			return c, false
		}
	}
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; c.Name == name {
			return c, !pods.Sidecar(c)
		}
	}
	return nil, false
}

// isRunning reports whether that run of the container is among the targets.
func isRunning(targets []Target, name, id string) bool {
	for _, t := range targets {
		if t.Name == name && t.ContainerID == id {
			return true
		}
	}
	return false
}
