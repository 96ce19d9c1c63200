package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/checkpoint"
	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/csinode"
	"github.com/berthd/berth/agent/doctor"
	"github.com/berthd/berth/agent/events"
	"github.com/berthd/berth/agent/hooks"
	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/agent/logs"
	"github.com/berthd/berth/agent/metrics"
	"github.com/berthd/berth/agent/mirror"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/noderegistry"
	"github.com/berthd/berth/agent/objects"
	"github.com/berthd/berth/agent/observe"
	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/steps"
	"github.com/berthd/berth/agent/tasks"
	"github.com/berthd/berth/agent/timeline"
	"github.com/berthd/berth/agent/tracing"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/agent/volumes/claims"
	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/agent/worker"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/probes"
	"github.com/berthd/berth/status"
)

// Cgroups is the node's cgroups as the agent uses them; package cgroups has them, tests have fakes.
type Cgroups interface {
	// Setup makes the node's root and QoS cgroups.
	Setup(ctx context.Context) error
	// EnsurePod makes a pod's cgroup and returns the runtime's name for it.
	EnsurePod(ctx context.Context, pod *v1.Pod) (parent string, err error)
	// RemovePod removes a pod's cgroup; one that is not there is nothing.
	RemovePod(ctx context.Context, uid types.UID) error
	// UpdateQoS sets the QoS cgroups' shares by the pods that there are.
	UpdateQoS(ctx context.Context, pods []*v1.Pod) error
	// SandboxResources and ContainerResources are the settings that the runtime is given.
	SandboxResources(pod *v1.Pod) (resources, overhead *runtimeapi.LinuxContainerResources)
	ContainerResources(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources
}

// Deps are the agent's surroundings.
type Deps struct {
	Runtime cri.Runtime
	// Importer imports image archives; nil where the runtime cannot.
	Importer images.Importer
	// Pin has the runtime keep an image, and Progress says how far a pull is; nil where the runtime cannot.
	Pin      func(ctx context.Context, name string) error
	Progress func(ctx context.Context, image string, since time.Time) (cri.PullProgress, error)
	Cgroups  Cgroups
	Node     *node.Node
	// Conn is the connection to the cluster's API server; nil for a node without a cluster.
	Conn *cluster.Conn
	// Rotators keep the certificates that the cluster signs.
	Rotators Rotators
	Metrics  *metrics.Set
	// Tracing has spans of the passes; nil for none.
	Tracing *tracing.Tracing
	Logger  *slog.Logger
	// KeepLogs has container logs rotated and bounded. It takes the kernel's notices, which tests in fake time cannot wait for.
	KeepLogs bool
	// Plugins has storage drivers registered. It takes the kernel's notices, too.
	Plugins bool
	// KernelLog is the kernel's log, which tells when the node is out of memory; empty for none.
	KernelLog string
	// Sources are what pods come from; empty means the config's own.
	Sources []source.Source
}

// Agent is the node agent. Make it with [New]; see the package's documentation for who owns what.
type Agent struct {
	cfg  *configs.Config
	deps Deps
	log  *slog.Logger

	node     *node.Node
	metrics  *metrics.Set
	events   *events.Recorder
	timeline *timeline.Book
	status   *status.Store
	// writer writes statuses to the API server; nil without a cluster.
	writer *status.Writer
	// registry keeps the cluster's knowledge of the node; nil without a cluster.
	registry *noderegistry.Registry
	// mirrors show static pods in the API server; nil without a cluster.
	mirrors    *mirror.Manager
	objects    *objects.Store
	checkpoint *checkpoint.Store
	observer   *observe.Observer
	volumes    *volumes.Manager
	podObjects podObjects
	drivers    *csi.Drivers           // of storage, registered
	csinode    *csinode.Keeper        // nil without a cluster
	attached   atomic.Pointer[string] // what a Node last said of attached volumes
	claims     *claims.Binder
	images     *images.Manager
	probes     *probes.Manager
	workers    *worker.Pool
	logs       *logs.Manager
	mux        *source.Mux
	pods       *podStates
	desired    *desired
	gate       *gate
	podCIDR    *podCIDR
	leftovers  chan struct{} // asks housekeeping to look soon
	foreign    uidSet
	admitted   uidSet
	pruning    uidSet // of which leftovers are being removed
	ephemerals ephemerals
	// allocations are the resources of the pods that are being resized.
	allocations allocations
	// relistAsked holds one wish for a listing of everything, takingIn whoever makes a worker for what was listed.
	relistAsked, takingIn chan struct{}

	// told are the manifest verdicts that have been told of; the main loop's own.
	told map[verdictKey]bool
	// files says which manifest each pod came from; restored, which pods each manifest had in an earlier run.
	files    atomic.Pointer[map[podUID]string]
	restored map[string][]*v1.Pod

	steps     []steps.Step
	starter   *steps.Starter
	stopper   *steps.Stopper
	slots     *slots
	admission sync.Mutex
	version   atomic.Pointer[runtimeapi.VersionResponse]
	// runtimeStatus is what the runtime last said that it can do.
	runtimeStatus atomic.Pointer[runtimeapi.StatusResponse]
	beat          atomic.Pointer[time.Time]
	// shutting says that the machine shuts down.
	shutting atomic.Bool
	prepared atomic.Bool // the node's cgroups are set up
	begun    time.Time   // when the pods of an earlier run were taken over
	ready    chan struct{}
}

// New puts an agent together; it starts nothing and touches nothing but its checkpoint directory.
func New(ctx context.Context, cfg *configs.Config, deps Deps) (*Agent, error) {
	store, err := checkpoint.Open(filepath.Join(cfg.RootDir, "berth", "pods"))
	if err != nil {
		return nil, err
	}
	a := &Agent{
		cfg: cfg, deps: deps, log: deps.Logger, node: deps.Node, metrics: deps.Metrics,
		events:      events.New(deps.Node.Name),
		timeline:    timeline.New(),
		status:      status.NewStore(),
		objects:     objects.New(),
		checkpoint:  store,
		observer:    observe.New(deps.Runtime),
		slots:       newSlots(int(cfg.Berth.MaxParallelPodStarts)),
		desired:     newDesired(),
		gate:        newGate(cfg.RootDir),
		podCIDR:     newPodCIDR(cfg.Kubelet.PodCIDR),
		leftovers:   make(chan struct{}, 1),
		relistAsked: make(chan struct{}, 1),
		takingIn:    make(chan struct{}, 1),
		ready:       make(chan struct{}),
	}
	sources, err := a.sources()
	if err != nil {
		return nil, err
	}
	a.mux = source.NewMux(sources, source.MuxDeps{Objects: a.objects, Out: a.desired.put})
	a.workers = worker.New(ctx, worker.Config{}, worker.Deps{Pass: a.pass, Gone: a.gone, Logger: a.log})
	a.pods = &podStates{byUID: map[podUID]*podState{}, group: func(uid podUID) *tasks.Group {
		return tasks.New(ctx, func() { a.workers.Wake(uid) })
	}}
	a.objects.OnChange(a.objectChanged)
	if a.podObjects, err = a.objectsOf(deps.Conn); err != nil {
		return nil, err
	}
	a.metrics.Running(a.observer.Counts)
	if a.images, err = a.imageManager(); err != nil {
		return nil, err
	}
	if err := a.assemble(); err != nil {
		return nil, err
	}
	if a.logs, err = a.logKeeper(); err != nil {
		return nil, err
	}
	a.steps = a.ladder()
	return a, nil
}

// assemble makes the managers that the steps work with.
func (a *Agent) assemble() error {
	a.claims = a.binder()
	growth, err := a.newGrowth()
	if err != nil {
		return err
	}
	a.volumes = volumes.New(volumes.Config{RootDir: a.cfg.RootDir, NodeName: a.node.Name, NodeAllocatable: a.node.Allocatable(), Templates: a.deps.Conn != nil}, volumes.Deps{
		CSI: a.csiDeps(), Growth: growth, Tokens: tokensOf(a.podObjects), Objects: a.podObjects, Claims: podClaims{local: a.claims, api: a.podObjects.api}, Events: a.events.Pod, FieldValue: fieldValue, ResourceValue: a.resourceValue, Logger: a.log,
	})
	a.probes = probes.New(probes.Config{}, probes.Deps{
		Exec: a.exec, Alive: a.alive, OnChange: func(uid types.UID) { a.workers.Wake(uid) }, Events: a.events.Pod, Observe: a.metrics.Probe, Logger: a.log,
	})
	runner := hooks.New(hooks.Config{}, hooks.Deps{Exec: a.exec, Events: a.events.Pod, Observe: a.metrics.Hook, Logger: a.log})
	a.stopper = &steps.Stopper{Runtime: a.deps.Runtime, Hooks: runner, Events: a.events, HostIPs: a.node.HostIPs}
	a.starter = &steps.Starter{
		Runtime: a.deps.Runtime, Volumes: a.volumes, Hooks: runner, Events: a.events, Node: nodeView{a}, Limits: a.limits,
		PodLogsDir: a.cfg.Kubelet.PodLogsDir, LinksDir: a.cfg.Berth.ContainerLogsDir,
		Started: func(kind plan.Kind, err error) { a.metrics.ContainerStarted(string(kind), err) },
	}
	return nil
}

// loop is one of the agent's long-running parts.
type loop struct {
	name string
	run  func(context.Context) error
}

// loops lists the agent's parts in the order in which they start; they are stopped in reverse.
func (a *Agent) loops() []loop {
	list := []loop{
		{"events", a.writeEvents},       // to the API server, and those of the end, too
		{"images", a.images.Run},        // pulls and preloads, for the passes
		{"probes", a.probes.Run},        // probing starts with what is restored
		{"runtime", a.watchRuntime},     // events wake the restored workers
		{"relist", a.relists},           // should an event be lost
		{"logs", a.keepLogs},            // rotates what is written from now on
		{"status", a.writeStatus},       // to the API server, as soon as a source has said what that has
		{"objects", a.watchObjects},     // of the API server, that the restored pods use
		{"tokens", a.renewTokens},       // for the same pods
		{"csinode", a.keepCSINode},      // what the cluster knows of storage drivers
		{"podcidr", a.tellPodCIDR},      // to the runtime, whose network may wait for it
		{"plugins", a.watchPlugins},     // drivers, before volumes are taken down or brought up
		{"node", a.keepNode},            // its Node object, before pods are bound to it
		{"mirrors", a.keepMirrors},      // of static pods
		{"sources", a.mux.Run},          // only now do pods come and go
		{"desired", a.reconcileDesired}, // and are given to the workers
		{"drain", a.drains},
		{"oom", a.watchMemory},
		{"housekeeping", a.housekeeping},
		{"lock", a.watchLock},
	}
	inCluster := []string{"events", "status", "objects", "tokens", "csinode", "node", "mirrors"}
	list = append(a.deps.Rotators.loops(), list...)
	return slices.DeleteFunc(list, func(l loop) bool {
		return a.deps.Conn == nil && slices.Contains(inCluster, l.name) || !a.deps.Plugins && l.name == "plugins"
	})
}

// Run restores the pods of an earlier run, starts the loops, and returns after ctx has ended and everything has been joined. Pods go on running.
func (a *Agent) Run(ctx context.Context) error {
	close(a.ready)
	a.events.Node(v1.EventTypeNormal, "Starting", "Starting kubelet.") // the kubelet's own words: alerts look for them
	if err := a.prepare(ctx); err != nil {
		return err
	}
	if err := a.restore(ctx); err != nil {
		return err
	}
	started := make([]*running, 0, 8)
	failed := make(chan error, 8)
	for _, l := range a.loops() {
		started = append(started, start(l, failed))
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	for i := len(started) - 1; i >= 0; i-- {
		err = errors.Join(err, started[i].stop())
	}
	a.workers.Close()
	a.pods.wait()
	a.tellLast()
	return err
}

// prepare makes what must be there before the first pod.
func (a *Agent) prepare(ctx context.Context) error {
	if err := makeDirs(a.cfg); err != nil {
		return err
	}
	if err := a.deps.Cgroups.Setup(ctx); err != nil {
		return fmt.Errorf("setting up the node's cgroups: %w", err)
	}
	a.prepared.Store(true)
	a.meetRuntime(ctx)
	return nil
}

// meetRuntime asks the runtime for its name and for what it can do, and reports whether it said all of it. It has answered before; what it does not
// say is taken as not there, or as it was.
func (a *Agent) meetRuntime(ctx context.Context) bool {
	v, err := a.deps.Runtime.Version(ctx)
	if err != nil {
		a.log.Warn("the runtime does not say its version", "err", err)
	} else {
		a.version.Store(v)
		a.log.Info("container runtime", "name", v.RuntimeName, "version", v.RuntimeVersion, "api", v.RuntimeApiVersion)
		if holes := doctor.Holes(v.RuntimeName, v.RuntimeVersion); len(holes) > 0 {
			a.log.Warn("the runtime has known vulnerabilities: update it, unless your distribution has fixed them in this version",
				"name", v.RuntimeName, "version", v.RuntimeVersion, "holes", holes)
		}
	}
	st, stErr := a.deps.Runtime.Status(ctx, false)
	if stErr != nil {
		a.log.Warn("the runtime does not say what it can do", "err", stErr)
		return false
	}
	handlers := map[string]node.Handler{}
	for _, h := range st.GetRuntimeHandlers() {
		handlers[h.Name] = node.Handler{RecursiveReadOnly: h.GetFeatures().GetRecursiveReadOnlyMounts(), UserNamespaces: h.GetFeatures().GetUserNamespaces()}
	}
	a.runtimeStatus.Store(st)
	a.nodeChanged()
	a.node.SetRuntimeFeatures(st.GetFeatures().GetSupplementalGroupsPolicy(), handlers)
	return err == nil
}

// running is a loop that was started.
type running struct {
	name   string
	cancel context.CancelFunc
	done   chan error
}

func start(l loop, failed chan<- error) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{name: l.name, cancel: cancel, done: make(chan error, 1)}
	go func() {
		err := l.run(ctx)
		if err != nil && ctx.Err() == nil {
			failed <- fmt.Errorf("%s: %w", l.name, err)
			err = nil // it is told
		}
		r.done <- err
	}()
	return r
}

// stop ends the loop and joins it.
func (r *running) stop() error {
	r.cancel()
	if err := <-r.done; err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("stopping %s: %w", r.name, err)
	}
	return nil
}

// Ready is closed once Run has begun: the agent answers, whether or not its runtime does.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Healthy returns an error when the agent's main loop has not turned for longer than limit: the systemd watchdog and /healthz/syncloop ask. An agent
// that still waits for its runtime is healthy: to start it again would not help.
func (a *Agent) Healthy(limit time.Duration) error {
	beat := a.beat.Load()
	if beat == nil {
		return nil
	}
	if late := time.Since(*beat); late > limit { // by the monotonic clock: the other one may jump
		return fmt.Errorf("the sync loop has not turned for %s", late.Round(time.Second))
	}
	return nil
}
