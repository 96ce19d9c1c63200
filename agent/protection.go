package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/images/garbage"
	"github.com/berthd/berth/agent/node/eviction"
	"github.com/berthd/berth/agent/node/shutdown"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
)

// protection are the parts that protect the node, and its pods when the machine ends.
type protection struct {
	eviction *eviction.Manager
	shutdown *shutdown.Manager
}

func (b *base) newProtection(p *parts) (protection, error) {
	evicting, err := b.newEviction(p)
	return protection{eviction: evicting, shutdown: b.newShutdown(p)}, err
}

// newEviction returns the manager that asks pods to leave when the node runs short.
func (b *base) newEviction(p *parts) (*eviction.Manager, error) {
	cfg, err := eviction.ConfigFrom(&b.cfg.Kubelet, b.deps.Cluster != nil)
	if err != nil {
		return nil, fmt.Errorf("reading the thresholds of evictions: %w", err)
	}
	if b.deps.KernelNotices {
		cfg.KernelNotices = eviction.KernelNotices
	}
	return eviction.New(cfg, eviction.Deps{
		Stats:     p.stats,
		Pods:      b.workers,
		Allocated: b.room.Allocated,
		Pressure:  b.pressure,
		Reclaimer: reclaimer{p},
		Changed:   b.signals.Node.Notify,
		Fitting:   b.fitting,
		Again:     b.signals.wanted.Notify,
		Events:    b.deps.Events,
		Metrics:   b.deps.Metrics,
		Logger:    b.deps.Logger,
	}), nil
}

// fitting returns those of these pods that the node has room for, all together. While a pod has not
// been decided on, it returns none: that pod may need the room.
func (b *base) fitting(list []*v1.Pod) []*v1.Pod {
	for uid, e := range b.workers.List() {
		if e.Phase == worker.Running && !e.Waiting && !b.room.Admitted(uid) && !pods.RuntimeOnly(e.Pod) {
			return nil
		}
	}
	refused := b.room.Try(list, func(*v1.Pod) bool { return false })
	return slices.DeleteFunc(slices.Clone(list), func(pod *v1.Pod) bool { return refused[pod.UID] != nil })
}

// newShutdown returns the manager that ends the pods before the machine does.
func (b *base) newShutdown(p *parts) *shutdown.Manager {
	deps := shutdown.Deps{
		Pods: p.drainer, Event: b.deps.Events.Node, Metrics: b.deps.Metrics, Logger: b.deps.Logger,
	}
	if b.deps.KernelNotices {
		deps.Connect = shutdown.Logind
	}
	return shutdown.New(shutdown.ConfigFrom(b.cfg), deps)
}

// reclaimer frees disk space before any pod has to leave: it removes what no pod needs.
type reclaimer struct{ parts *parts }

// DeleteUnusedImages removes the images that no pod uses.
func (r reclaimer) DeleteUnusedImages(ctx context.Context) error {
	return r.parts.imageGC.DeleteUnusedImages(ctx)
}

// DeleteDeadContainers removes the containers of pods that have ended.
func (r reclaimer) DeleteDeadContainers(ctx context.Context) error {
	return r.parts.engine.DeleteDeadContainers(ctx)
}

// DeleteContainersOf removes the containers of a pod that has ended.
func (r reclaimer) DeleteContainersOf(ctx context.Context, uid types.UID) error {
	return r.parts.engine.DeleteContainersOf(ctx, uid)
}

func (b *base) newImageGC(p *parts) *garbage.Collector {
	d := &b.deps
	return garbage.New(garbage.PolicyFrom(b.cfg), filepath.Join(b.cfg.RootDir, "berth", "images.json"), garbage.Deps{
		Runtime: d.Runtime, Images: p.images, Wanted: p.wanted, FileSystem: p.stats.ImageFs, Event: d.Events.Node,
		Removed: d.Metrics.ImageCollected, Logger: d.Logger,
	})
}

// wanted returns the pods that have not ended, and those that a source wants and that have no
// worker yet, or have none because the node is drained.
func (p *parts) wanted() []*v1.Pod {
	known := p.workers.Known()
	out := slices.DeleteFunc(p.engine.Pods(), func(pod *v1.Pod) bool { return pods.Terminal(pod.Status.Phase) })
	for uid, pod := range p.mux.Current().Pods {
		if !known[uid] {
			out = append(out, pod)
		}
	}
	return out
}
