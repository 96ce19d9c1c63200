package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/desired/drain"
	"github.com/berthd/berth/agent/desired/stopped"
	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/agent/images/garbage"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/agent/server"
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

// Node returns the node's resources, and the state of the runtime, of the connection to the cluster
// and of a drain. It asks the runtime for the runtime's conditions, unless the runtime is silent.
func (f Face) Node(ctx context.Context) api.NodeStatus {
	capacity, allocatable := f.node.Published()
	out := api.NodeStatus{Drain: f.Drained(), Resources: &api.Resources{
		Capacity: capacity, Allocatable: allocatable, Requested: f.parts.room.Requested(),
		ReservedCPUs: f.node.ReservedCPUs(),
	}}
	out.Runtime.Name, out.Runtime.Version = f.parts.runtime.Is()
	if silence := f.parts.runtime.Silent(ctx); silence != nil {
		out.Runtime.SilentSince, out.Runtime.Error = &silence.Since, silence.Reason()
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

// Images returns the node's images and their use; see [garbage.Collector.List].
func (f Face) Images(ctx context.Context) ([]api.Image, error) {
	list, err := f.parts.imageGC.List(ctx)
	return imagesOf(list), err
}

// PruneImages removes the images that nothing uses, and returns them; see
// [garbage.Collector.Prune]. With dryRun it removes none.
func (f Face) PruneImages(ctx context.Context, dryRun bool) ([]api.Image, error) {
	if !dryRun {
		removed, err := f.parts.imageGC.Prune(ctx)
		return imagesOf(removed), err
	}
	list, err := f.parts.imageGC.List(ctx)
	return imagesOf(slices.DeleteFunc(list, func(i garbage.Image) bool { return !i.Removable() })), err
}

// PullImage pulls an image, and returns its ID; see [images.Manager.Pull].
func (f Face) PullImage(ctx context.Context, image string) (id string, err error) {
	pulled, err := f.parts.images.Pull(ctx, image)
	return pulled.Ref, err
}

// RemoveImage removes one image; see [garbage.Collector.Remove].
func (f Face) RemoveImage(ctx context.Context, name string) (api.Image, error) {
	image, err := f.parts.imageGC.Remove(ctx, name)
	if err != nil {
		return api.Image{}, err
	}
	return imagesOf([]garbage.Image{*image})[0], nil
}

func imagesOf(list []garbage.Image) []api.Image {
	out := make([]api.Image, 0, len(list))
	for _, i := range list {
		tags := slices.Clone(i.GetRepoTags())
		slices.Sort(tags)
		out = append(out, api.Image{
			ID: i.GetId(), Tags: tags, Digests: i.GetRepoDigests(), Size: i.GetSize(), Pinned: i.KeptBy != "",
			PinnedBy: i.KeptBy, InUse: i.UsedBy != "", UsedBy: i.UsedBy, LastUsed: i.LastUsed,
		})
	}
	return out
}

// Pulls returns the pulls of images that are under way or failed. Pulls asks the runtime for the
// progress of those under way.
func (f Face) Pulls(ctx context.Context) []api.Pull {
	progress := f.parts.images.Progress(ctx)
	out := make([]api.Pull, 0, len(progress))
	for _, p := range progress {
		out = append(out, pullOf(p))
	}
	return out
}

func pullOf(p images.Pull) api.Pull {
	pull := api.Pull{
		Image:   p.Image,
		State:   string(p.State),
		Since:   p.Since,
		Done:    p.Done,
		Total:   p.Total,
		Message: p.Error,
		Waiters: len(p.Pods),
	}
	if !p.RetryAt.IsZero() {
		at := p.RetryAt
		pull.RetryAt = &at
	}
	return pull
}

// Archives returns the archives of the images directory, by path; see [images.Manager.Archives].
func (f Face) Archives() []api.Archive {
	var out []api.Archive
	for _, a := range f.parts.images.Archives() {
		state := api.ArchiveImported
		switch {
		case a.Error != "":
			state = api.ArchiveFailed
		case len(a.Images) == 0:
			state = api.ArchiveWaiting
		}
		out = append(out, api.Archive{Path: a.Path, State: state, Images: a.Images, Error: a.Error})
	}
	return out
}

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
