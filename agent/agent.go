package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/node/iptables"
	"github.com/berthd/berth/agent/node/lock"
	"github.com/berthd/berth/agent/node/oom"
	"github.com/berthd/berth/agent/node/plugins"
	"github.com/berthd/berth/agent/node/podsapi"
	"github.com/berthd/berth/agent/node/stats"
	"github.com/berthd/berth/agent/pod"
	"github.com/berthd/berth/agent/server/imagesapi"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/telemetry/events"
	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/agent/telemetry/tracing"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/lifecycle"
)

// Cgroups are the node's cgroups; package hostcgroups has the machine's, tests have fakes.
type Cgroups interface {
	pod.Cgroups
	// SetPinned says, before Setup, who has CPUs for himself: a container or, with nil, a whole
	// pod. No quota needs to limit these.
	SetPinned(pinned func(pod *v1.Pod, c *v1.Container) bool)
	// Setup makes the node's root and QoS cgroups, and Teardown removes them; Teardown fails if
	// there are pods left.
	Setup(ctx context.Context) error
	Teardown(ctx context.Context) error
	// UpdateQoS sets the shares of the QoS cgroups from the node's pods.
	UpdateQoS(ctx context.Context, pods []*v1.Pod) error
	// Stats returns the reader of the cgroups' usage; nil until the cgroups are set up.
	Stats() stats.Cgroups
}

// Deps are the agent's surroundings.
type Deps struct {
	Runtime cri.Runtime
	// Capabilities are the runtime's abilities beyond the CRI.
	Capabilities cri.Capabilities
	Cgroups      Cgroups
	Node         *node.Node
	// Cluster is the connection to the cluster's API server; nil for a node without a cluster.
	Cluster *cluster.Connection
	Metrics *metrics.Set
	Events  *events.Recorder
	// Tracing records spans of the syncs; nil if no spans are recorded.
	Tracing *tracing.Tracing
	Logger  *slog.Logger
	// KernelNotices makes the agent rotate container logs, register plugins and look for evictions
	// by the kernel's notices (inotify, PSI). Tests in fake time cannot wait for such notices.
	KernelNotices bool
	// Iptables runs the machine's iptables; nil if the agent keeps no chains, whatever the config
	// says.
	Iptables iptables.Command
	// KernelLog is the path of the kernel's log, which says when the node is out of memory; empty
	// if the agent reads none.
	KernelLog string
	// Sources are the sources of static pods; if empty, the config's own sources are used.
	Sources []source.Source
}

// Agent is the node agent: its parts, put together. Make it with [New]; see the package's
// documentation for who owns what.
type Agent struct {
	cfg  *configs.Config
	deps Deps
	log  *slog.Logger
	*parts
	Face
	ready chan struct{}
}

// New puts an agent together. New starts nothing, and touches only the agent's state files: its
// checkpoint directory, cpu_manager_state and memory_manager_state.
func New(ctx context.Context, cfg *configs.Config, deps Deps) (*Agent, error) {
	parts, err := newParts(ctx, cfg, deps)
	if err != nil {
		return nil, err
	}
	return &Agent{
		cfg:   cfg,
		deps:  deps,
		log:   deps.Logger,
		parts: parts,
		Face: Face{
			parts: parts, node: deps.Node, events: deps.Events, Answers: imagesapi.New(parts.images, parts.imageGC),
		},
		ready: make(chan struct{}),
	}, nil
}

// loops lists the agent's parts in the order in which they start; they are stopped in reverse.
func (a *Agent) loops() []lifecycle.Loop {
	own := func(name string, run func(context.Context) error) []lifecycle.Loop {
		return []lifecycle.Loop{{Name: name, Run: run}}
	}
	return slices.Concat(
		a.side.First(),                   // certificates and events, up to the last event
		own("history", a.history.Run),    // likewise
		own("images", a.images.Run),      // pulls and preloads, for the syncs
		own("probes", a.probes.Run),      // probing starts with what is restored
		own("runtime", a.pleg.Run),       // events wake the restored workers
		own("relist", a.pleg.Relists),    // if an event is lost
		own("logs", a.logs.Run),          // rotates what is written from now on
		own("iptables", a.keepChains),    // before a pod can be reached
		own("podcidr", a.podCIDR.Run),    // the runtime's network may wait for it
		own("devices", a.allocation.Run), // containers wait for their plugins
		own("pods api", a.servePods),     // tells of the pods that are restored
		own("plugins", a.plugins),        // drivers, before volumes come up or go down
		a.side.Loops(),                   // the Node, and the objects of restored pods
		own("sources", a.mux.Run),        // only now do pods come and go
		own("desired", a.reconciler.Run), // and the workers get them
		own("drain", a.drainer.Run),      // and may be taken from them again
		own("stopped", a.operator.Run),   // stops grow old while the sources speak
		own("eviction", a.eviction.Run),  // for the sake of the node
		own("shutdown", a.shutdown.Run),  // for which the machine waits
		own("oom", a.reportOOM),          // by now the readers can read events
		own("housekeeping", a.gc.Run),    // after the sources have begun to speak
		own("image gc", a.imageGC.Run),   // likewise: what they want is in use
		own("lock", func(ctx context.Context) error { return lock.Watch(ctx, a.cfg.Lock) }),
	)
}

// reportOOM reports each time that the node was out of memory.
func (a *Agent) reportOOM(ctx context.Context) error {
	oom.Report(ctx, a.deps.KernelLog, a.deps.Events, a.log)
	return nil
}

// servePods serves the pods API, if the feature gate is on.
func (a *Agent) servePods(ctx context.Context) error {
	if !a.deps.KernelNotices || !a.cfg.GateEnabled("PodsAPI") {
		return lifecycle.Idle(ctx)
	}
	return podsapi.New(a.cfg.RootDir, podsapi.Deps{
		Pods: a.engine.Pods, Watch: a.engine.WatchPods, Logger: a.log,
	}).Run(ctx)
}

// keepChains keeps a kubelet's chains of iptables, if the config wants them.
func (a *Agent) keepChains(ctx context.Context) error {
	if a.deps.Iptables == nil || !*a.cfg.Kubelet.MakeIPTablesUtilChains {
		return lifecycle.Idle(ctx)
	}
	return iptables.New(a.deps.Iptables, a.log).Run(ctx)
}

// Run restores the pods of an earlier run, starts the loops, and returns after ctx has ended and
// everything has been joined. Pods go on running.
func (a *Agent) Run(ctx context.Context) error {
	close(a.ready)
	// the kubelet's own words: alerts look for these words
	a.deps.Events.Node(v1.EventTypeNormal, "Starting", "Starting kubelet.")
	for _, w := range a.deps.Node.Warnings() {
		a.deps.Events.Node(v1.EventTypeWarning, w.Reason, w.Message)
	}
	// before everything that waits for the runtime, so that people see what it waits for
	defer lifecycle.Beside(ctx, a.runtime.Watch)()
	if err := a.prepare(ctx); err != nil {
		a.deps.Events.Node(v1.EventTypeWarning, "KubeletSetupFailed", err.Error())
		return err
	}
	a.workers.Start(a.engine)
	if err := a.adopter.Restore(ctx); err != nil {
		return err
	}
	err := lifecycle.Run(ctx, a.loops())
	a.engine.End()
	a.side.Flush()
	return err
}

// prepare makes everything that must exist before the first pod.
func (a *Agent) prepare(ctx context.Context) error {
	if err := makeDirs(a.cfg); err != nil {
		return err
	}
	if err := plugins.MakeDirs(a.cfg.RootDir, a.log); err != nil {
		return err
	}
	if err := a.deps.Cgroups.Setup(ctx); err != nil {
		return fmt.Errorf("setting up the node's cgroups: %w", err)
	}
	a.runtime.Meet(ctx)
	return nil
}

// makeDirs makes the directories in which the agent keeps its files.
func makeDirs(cfg *configs.Config) error {
	for dir, mode := range map[string]os.FileMode{
		cfg.RootDir:                0o750,
		cfg.RootDir + "/pods":      0o750,
		cfg.Kubelet.PodLogsDir:     0o755,
		cfg.Berth.ContainerLogsDir: 0o755,
	} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("making the agent's directories: %w", err)
		}
	}
	return nil
}

// Ready is closed once Run has begun: the agent answers, even if its runtime does not.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Shutdown stops the node's pods because the machine shuts down; see [shutdown.Manager.Shutdown].
func (a *Agent) Shutdown(ctx context.Context) error { return a.shutdown.Shutdown(ctx) }

// ShutdownLimit is the longest that Shutdown takes.
func (a *Agent) ShutdownLimit() time.Duration { return a.drainer.ShutdownLimit() }

// KillPods cuts the grace of every pod short.
func (a *Agent) KillPods() { a.engine.Kill() }

// Dismantle removes the node's cgroups after Run has returned, for an agent without a successor.
// Dismantle fails if there are pods left.
func (a *Agent) Dismantle(ctx context.Context) error { return a.deps.Cgroups.Teardown(ctx) }

// AwaitRuntime waits until the container runtime answers, and returns its last error if ctx ends
// first.
func (a *Agent) AwaitRuntime(ctx context.Context) error { return a.runtime.Await(ctx) }
