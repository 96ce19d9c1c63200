package agent

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/desired/drain"
	"github.com/berthd/berth/agent/desired/stopped"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/agent/server"
	"github.com/berthd/berth/agent/server/imagesapi"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/telemetry/events"
	"github.com/berthd/berth/client/api"
)

// NewServer returns the HTTP API of this agent. The server listens only after the call of its Run.
// setVerbosity sets how much the agent logs, as the kubelet's flag -v does; nil if nobody may set
// that.
func (a *Agent) NewServer(version string, setVerbosity func(level uint32)) (*server.Server, error) {
	deps := server.Deps{
		Runtime: a.deps.Runtime, Drainer: a.Face, Operator: a.Operator(), Stats: a.stats,
		History: a.history, SetVerbosity: setVerbosity, Metrics: a.deps.Metrics, Tracing: a.deps.Tracing, Logger: a.log,
	}
	if a.cfg.ServesAPI() {
		secure := server.SecureDeps{
			Node:     a.deps.Node.Name,
			Serving:  a.side.Serving(),
			Reviewer: a.side.Reviewer(),
			Logger:   a.log,
		}
		if err := deps.Secure(a.cfg, secure); err != nil {
			return nil, fmt.Errorf("preparing the API's port: %w", err)
		}
	}
	return server.New(server.ConfigFrom(a.cfg, a.deps.Node.Name, version), a.Face, deps)
}

// Face answers the questions of the server and of the commands. It passes each question to the part
// that has the answer.
type Face struct {
	parts  *parts
	node   *node.Node
	events *events.Recorder
	imagesapi.Answers
}

var (
	_ server.Backend = Face{}
	_ server.Drainer = Face{}
)

// Pods returns every pod of the node with its status; see [pod.Engine.Pods].
func (f Face) Pods() []*v1.Pod { return f.parts.engine.Pods() }

// WatchPods returns a channel that receives after any pod has changed, and a function that ends the
// watch.
func (f Face) WatchPods() (changed <-chan struct{}, stop func()) { return f.parts.engine.WatchPods() }

// Timeline returns the finished steps of a pod's worker, and the step under way.
func (f Face) Timeline(uid types.UID) (timeline.Timeline, bool) { return f.parts.engine.Timeline(uid) }

// AddEphemeral adds an ephemeral container to a pod that runs; see [pod.Engine.AddEphemeral].
func (f Face) AddEphemeral(ctx context.Context, uid types.UID, c *v1.EphemeralContainer) error {
	return f.parts.engine.AddEphemeral(ctx, uid, c)
}

// Try returns why pods would be refused; see [room.Room.Try].
func (f Face) Try(wanted []*v1.Pod, leaves func(*v1.Pod) bool) map[types.UID]*admit.Rejection {
	return f.parts.room.Try(wanted, leaves)
}

// Events returns the kept events, the latest at the end.
func (f Face) Events() []v1.Event { return f.events.List() }

// WatchEvents returns the kept events, a channel of those that follow, and a function that ends the
// watch.
func (f Face) WatchEvents() (kept []v1.Event, following <-chan v1.Event, stop func()) {
	return f.events.Subscribe()
}

// Validated returns the validation result of each document of each manifest.
func (f Face) Validated() []source.Result { return f.parts.desired.Validated() }

// Notes returns whether the runtime answers, and the state of a drain.
func (f Face) Notes(ctx context.Context) api.Notes {
	out := api.Notes{Drain: f.Drained()}
	if silence := f.parts.runtime.Silent(ctx); silence != nil {
		out.SilentSince, out.Error = &silence.Since, silence.Reason()
	}
	return out
}

// Node returns the node's resources, and the state of the runtime, of the connection to the cluster
// and of a drain. It asks the runtime for the runtime's conditions, unless the runtime is silent.
func (f Face) Node(ctx context.Context) api.NodeStatus {
	capacity, allocatable := f.node.Published()
	notes := f.Notes(ctx)
	out := api.NodeStatus{Drain: notes.Drain, Resources: &api.Resources{
		Capacity: capacity, Allocatable: allocatable, Requested: f.parts.room.Requested(),
		ReservedCPUs: f.node.ReservedCPUs(),
	}}
	out.Runtime.Name, out.Runtime.Version = f.parts.runtime.Is()
	if notes.SilentSince != nil {
		out.Runtime.SilentSince, out.Runtime.Error = notes.SilentSince, notes.Error
	} else if faults, err := f.parts.runtime.Faults(ctx); err != nil {
		out.Runtime.Error = err.Error()
	} else {
		out.Runtime.Faults = faults
	}
	out.Archives, out.Config = f.Archives(), (*api.ConfigFault)(f.parts.config.Fault())
	for _, condition := range f.parts.eviction.Conditions() {
		out.Pressure = append(out.Pressure, string(condition))
	}
	if f.parts.side.Joined() {
		lease := f.parts.side.Lease()
		out.Cluster = &api.Cluster{Server: lease.Server, Renewed: lease.Renewed, Late: lease.Over}
	}
	return out
}

// Healthy returns an error if the agent's main loop has not turned for longer than limit. The
// systemd watchdog and /healthz/syncloop ask this question.
func (f Face) Healthy(limit time.Duration) error { return f.parts.reconciler.Healthy(limit) }

// DevicePluginsServed returns an error while device plugins cannot register. The agent tries again:
// the systemd watchdog does not ask this question, because a restart would not help.
func (f Face) DevicePluginsServed() error { return f.parts.allocation.Devices.Served() }

// Drain begins to stop all pods of the node; see [drain.Drainer.Drain].
func (f Face) Drain(req api.DrainRequest) error {
	return f.parts.drainer.Drain(drain.Request{GraceSeconds: req.GraceSeconds, Hold: req.Hold})
}

// Undrain lets pods run again.
func (f Face) Undrain() error { return f.parts.drainer.Undrain() }

// Operator restarts, stops and starts single pods.
func (f Face) Operator() *stopped.Operator { return f.parts.operator }

// Drained says whether pods may run. If pods may not run, Drained names the pods that are left.
func (f Face) Drained() api.Drain {
	p := f.parts.drainer.Drained()
	return api.Drain{State: string(p.State), Since: p.Since, Left: p.Left}
}
