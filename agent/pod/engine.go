package pod

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/node/allocation"
	"github.com/berthd/berth/agent/node/room"
	"github.com/berthd/berth/agent/node/runtimestate"
	"github.com/berthd/berth/agent/node/userns"
	"github.com/berthd/berth/agent/pod/checkpoint"
	"github.com/berthd/berth/agent/pod/hooks"
	"github.com/berthd/berth/agent/pod/observe"
	"github.com/berthd/berth/agent/pod/origin"
	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/steps"
	"github.com/berthd/berth/agent/pod/tasks"
	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/telemetry/events"
	"github.com/berthd/berth/agent/telemetry/history"
	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/agent/telemetry/tracing"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/internal/silent"
	"github.com/berthd/berth/probes"
	"github.com/berthd/berth/status"
)

// Config has the engine's settings.
type Config struct {
	// RootDir is the kubelet's root directory. PodLogsDir has the pods' logs, and LinksDir the
	// links to the logs.
	RootDir, PodLogsDir, LinksDir string
	// CrashLoopBackOff bounds the delays of containers that crash.
	CrashLoopBackOff configs.CrashLoopBackOffConfiguration
	// Dead limits the dead containers that are kept.
	Dead configs.ContainerGCOptions
	// RunLastKnown lets pods of an earlier run start before the API server is read.
	RunLastKnown bool
}

// Cgroups keeps the pods' cgroups. Package cgroups implements it, and tests have fakes.
type Cgroups interface {
	// EnsurePod makes a pod's cgroup and returns the runtime's name for it.
	EnsurePod(ctx context.Context, pod *v1.Pod) (parent string, err error)
	// RemovePod removes a pod's cgroup. A cgroup that does not exist is no error.
	RemovePod(ctx context.Context, uid types.UID) error
	// SandboxResources and ContainerResources return the settings for the runtime.
	SandboxResources(pod *v1.Pod) (resources, overhead *runtimeapi.LinuxContainerResources)
	ContainerResources(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources
	// MemoryUsage returns the bytes of memory that a pod cannot give back at once; with a
	// container's id, it returns those of that container. The error is fs.ErrNotExist if there is
	// no such cgroup.
	MemoryUsage(pod *v1.Pod, containerID string) (int64, error)
}

// Desired says what the sources want; *desired.State implements it.
type Desired interface {
	// Pod returns the pod as its source wants it; nil if no source wants the pod. File returns the
	// pod's manifest, if any.
	Pod(uid types.UID) *v1.Pod
	File(uid types.UID) string
	// ReadAPI reports whether the API server has said which pods it has.
	ReadAPI() bool
}

// Cluster answers the engine's questions about the cluster.
type Cluster interface {
	// Joined reports whether the node belongs to a cluster.
	Joined() bool
	// Mirrored returns the status that the API server has of a static pod; nil if it is not known.
	Mirrored(pod *v1.Pod) *v1.PodStatus
}

// Records are the stores of the facts about pods.
type Records struct {
	Checkpoint *checkpoint.Store
	Status     *status.Store
	Timeline   *timeline.Recorder
	History    *history.Recorder
}

// Telemetry has the receivers of the engine's reports.
type Telemetry struct {
	Events  *events.Recorder
	Metrics *metrics.Set
	Tracing *tracing.Tracing
	Log     *slog.Logger
}

// Runtime is the container runtime, with the facts that are known of it.
type Runtime struct {
	cri.Runtime
	State *runtimestate.State
	// Observer reads the sandboxes and containers that the runtime has of each pod.
	Observer *observe.Observer
	Cgroups  Cgroups
	// Interrupted is called after an operation was cut off in the runtime. Such an operation may
	// have left something behind.
	Interrupted func()
}

// Node is the machine, with the parts of it that pods use.
type Node struct {
	*node.Node
	Room *room.Room
	// Allocation gives containers the node's devices.
	Allocation *allocation.Manager
	Logs       LogTracker
	// UserIDs gives pods with hostUsers: false their ids.
	UserIDs *userns.Allocator
	// Resized is called after a resize was completed: the weights of the QoS classes have changed.
	Resized func()
}

// Deps are what the engine works with.
type Deps struct {
	Records
	Telemetry
	Runtime Runtime
	Node    Node
	Workers *worker.Pool
	Volumes *volumes.Manager
	Images  *images.Manager
	Probes  *probes.Manager
	Hooks   *hooks.Runner
	// Looks bounds the looks at file systems that may not answer.
	Looks   *silent.Looks
	Starts  *StartLimiter
	Objects *origin.Objects
	Desired Desired
	Cluster Cluster
	// StaticChanged is called when static pods went.
	StaticChanged func()
	// Stopped returns the stop of a pod that an operator has stopped; nil for any other pod.
	Stopped func(pod *v1.Pod) *worker.Stop
	// Pruning reports whether leftovers of the pod are being removed: a sync waits until that is
	// done.
	Pruning func(uid types.UID) bool
}

// Engine takes pods through their lives. Make it with [New].
type Engine struct {
	cfg  Config
	deps Deps
	log  *slog.Logger

	states     *states
	pipeline   pipeline
	starter    *steps.Starter
	stopper    *steps.Stopper
	ephemerals *ephemerals
	restarts   *askedRestarts
	reporter   *reporter
	resizer    *resizer
	takeover   *takeover
}

// New returns an engine. The engine does nothing before the pool of workers is started with it. The
// pods' tasks live at most as long as ctx.
func New(ctx context.Context, cfg Config, deps Deps) *Engine {
	e := &Engine{
		cfg: cfg, deps: deps, log: deps.Log,
		ephemerals: &ephemerals{}, restarts: &askedRestarts{},
		stopper: &steps.Stopper{
			Runtime: deps.Runtime, Hooks: deps.Hooks, Events: deps.Events, HostIPs: deps.Node.HostIPs,
			GiveUp: deps.Volumes.GiveUp,
		},
	}
	e.states = newStates(func(uid types.UID) *tasks.Group {
		return tasks.New(ctx, func() { deps.Workers.Wake(uid) }, func(what any) error { return e.caught(uid, what) })
	})
	e.starter = &steps.Starter{
		Runtime: deps.Runtime, Volumes: deps.Volumes, Hooks: deps.Hooks, Events: deps.Events, Node: nodeView{&e.deps},
		Limits: e.limits, PodLogsDir: cfg.PodLogsDir, LinksDir: cfg.LinksDir,
		Started: func(kind plan.Kind, err error) { deps.Metrics.ContainerStarted(string(kind), err) },
	}
	e.reporter = &reporter{cfg: cfg, deps: &e.deps}
	e.resizer = &resizer{deps: &e.deps, ephemerals: e.ephemerals}
	e.takeover = &takeover{deps: &e.deps}
	e.pipeline = e.list()
	return e
}

// endLimit is how long End waits for what is under way.
const endLimit = 10 * time.Second

// End ends the workers, cancels the syncs and the tasks under way, and joins them. What waits for a
// file system that does not answer cannot be cancelled: after [endLimit] it is left behind, and
// ends with the process.
func (e *Engine) End() {
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		e.deps.Workers.Close()
		e.states.wait()
	}()
	select {
	case <-joined:
	case <-time.After(endLimit):
		e.log.Warn("the work for some pods does not end, and is left behind: does a file system not answer?",
			"tasks", e.states.active())
	}
}

// Began sets the time at which the agent began to take over the pods of an earlier agent.
func (e *Engine) Began(at time.Time) { e.takeover.began.Store(&at) }

// Resume goes on with a pod of an earlier run from its record.
func (e *Engine) Resume(uid types.UID, rec *checkpoint.Record) {
	st := e.states.of(uid)
	st.record = rec
	e.deps.Probes.Restore(uid, rec.Probes)
	if rec.Status != nil {
		if e.deps.Status.Restore(rec.Pod, *rec.Status); rec.Ended {
			e.deps.Status.End(uid)
		}
	}
	e.ephemerals.set(uid, rec.Ephemeral)
	if rec.Admitted {
		e.deps.Node.Room.Restore(uid, nil)
	}
	if rec.Resize != nil {
		e.deps.Node.Room.SetAllocated(uid, rec.Resize.Allocated.On(e.ephemerals.with(rec.Pod)))
	}
	if r := rec.Rejected; r != nil {
		rejection := &steps.Rejection{Reason: r.Reason, Message: r.Message, Detail: r.Detail}
		e.deps.Timeline.Add(uid, timeline.Entry{
			Step:    steps.Admit{}.Name(),
			Begin:   time.Now(),
			End:     time.Now(),
			Outcome: timeline.Failed,
			Message: rejection.Error(),
		})
	}
	// the pod's sync knows more, but a pod that has ended has no sync
	trackLogs(e.deps.Node.Logs, e.cfg.PodLogsDir, rec.Pod, &plan.Observed{})
	e.deps.Workers.Adopt(rec.Pod, rec.Resume(time.Now()))
}

// Gone drops everything that is kept about a pod whose records are gone. next is the pod that comes
// back under the UID; next goes on from the remembered facts about the containers. Gone is the last
// call of the pod's worker.
func (e *Engine) Gone(uid types.UID, next *v1.Pod) {
	for _, forget := range e.forgets(uid, next) {
		e.guarded(uid, forget)
	}
}

// forgets lists what Gone does, in order. A panic in one of these keeps none of the others, which
// let go of the node's room and devices.
func (e *Engine) forgets(uid types.UID, next *v1.Pod) []func() {
	d := &e.deps
	return []func(){
		func() {
			last := e.states.drop(uid)
			d.Node.Logs.Forget(uid)
			if err := e.forget(uid, last, next); err != nil {
				e.log.Error("checkpoint of a pod that is gone not removed", "uid", uid, "err", err)
			}
		},
		func() { e.ephemerals.drop(uid) },
		func() { e.restarts.drop(uid) },
		func() { d.Images.Forget(uid) },
		func() { d.Probes.Stop(uid) },
		func() {
			if s, ok := d.Status.Get(uid); ok {
				d.Metrics.ForgetPod(s.Namespace, s.Name, uid)
			}
		},
		func() { d.Runtime.Observer.Forget(uid) },
		func() { d.History.End(uid) },
		func() { d.Status.Delete(uid) },
		func() { d.Timeline.Forget(uid) },
		func() { d.Node.Allocation.Forget(uid) },
		func() { d.Node.Room.Forget(uid) },
		func() {
			if next != nil {
				d.Metrics.PodRestarted(!pods.FromAPI(next))
			}
			d.StaticChanged()
		},
	}
}

// forget removes a pod's checkpoint. But another pod may come next under the same UID: a static pod
// whose manifest was taken away and put back while the pod ended. The next pod begins with the
// remembered facts about its containers, because a kubelet counts them as restarted. If the agent
// was started meanwhile, and nobody wanted the pod yet, the pod begins anew. So does a pod whose
// containers do not always run again: their ends before would be its own end.
func (e *Engine) forget(uid types.UID, last *checkpoint.Record, next *v1.Pod) error {
	if next == nil || last == nil || last.Status == nil || next.Spec.RestartPolicy != v1.RestartPolicyAlways {
		return e.deps.Checkpoint.Remove(uid)
	}
	rec := e.states.of(uid).record
	rec.Pod, rec.Status = next, status.Successor(last.Status)
	return e.save(rec)
}

// save writes a pod's checkpoint. A pod that is only known from the runtime has none.
func (e *Engine) save(rec *checkpoint.Record) error {
	if rec.Pod == nil {
		return nil
	}
	return e.deps.Checkpoint.Save(rec.Pod.UID, rec)
}

// userNamespaces gives pods with hostUsers: false their ids, and knows which runtime handlers can
// use such ids.
type userNamespaces struct {
	*userns.Allocator
	node *node.Node
}

// Supported returns the reason why a runtime handler cannot give a pod its own users; nil if the
// handler can. An empty handler is the runtime's own choice.
func (u userNamespaces) Supported(handler string) error {
	switch {
	case u.node.UserNamespaces(handler):
		return nil
	case handler == "":
		return fmt.Errorf("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	}
	return fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces",
		handler)
}
