// Package gc removes things that nobody wants any more: directories, logs and cgroups of pods, dead
// containers of which there are too many, staged volumes, records of images, and leftovers of which
// the runtime has lost track.
//
// Purpose: nothing stays behind for ever, whatever part crashes at whatever moment.
//
// Truth owned: the pods whose leftovers are being removed ([Marks]). Such a pod must not be made
// meanwhile.
//
// Concurrency: a [Collector] is safe for concurrent use. [Collector.Run] has three loops, so that a
// removal that waits for a driver holds up nothing else: one makes the rounds, one looks for what
// is left of pods, each of which goes in a goroutine of its own, and one unstages volumes.
package gc

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/observe"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/loglimit"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/retry"
)

const (
	// period is the time between two rounds when nothing changes. A round looks for leftovers and
	// brings the QoS cgroups up to date.
	period = time.Minute
	// apart is the least time between two rounds: if many pods come or go at once, one round serves
	// all of them.
	apart = time.Second
	// leftoverDelay is the delay of a round after a start, a failed start of a sandbox, or the
	// runtime's return. By then, an operation that was cut off in the middle has come to rest.
	leftoverDelay = 10 * time.Second
	// atOnce is how many pods' leftovers are removed at once.
	atOnce = 8
	// imageTidyPeriod is the time between two searches for records of pulls whose images are gone.
	imageTidyPeriod = time.Hour
)

// Deps are what a collector works with.
type Deps struct {
	// Workers are the pods' workers: a pod that has one, or waits for one, is wanted.
	Workers interface {
		Has(uid types.UID) bool
		Known() map[types.UID]bool
		Wake(uid types.UID)
	}
	// Live returns the pods that have not ended, with what they were allocated. Ready reports
	// whether every source has said what it wants; nothing is removed before that.
	Live     func() []*v1.Pod
	Ready    func() bool
	Observer *observe.Observer
	Volumes  *volumes.Manager
	Cgroups  interface {
		RemovePod(ctx context.Context, uid types.UID) error
		UpdateQoS(ctx context.Context, pods []*v1.Pod) error
	}
	Images interface {
		Tidy(ctx context.Context)
	}
	// Containers removes dead containers if there are more than the config allows.
	Containers interface {
		TrimDeadContainers(ctx context.Context) error
	}
	// Event records an event about the node.
	Event func(kind, reason, message string)
	// Repairer removes leftovers of which the runtime has lost track; nil if the runtime leaves
	// none.
	Repairer cri.Repairer
	// PodLogsDir is the directory of all pods' logs, LinksDir that of the links to them.
	PodLogsDir, LinksDir string
	// Marks has the pods whose leftovers are being removed.
	Marks *Marks
	// Changed says that the set of pods has changed. Interrupted says that an operation was cut off
	// in the middle.
	Changed, Interrupted notify.Signal
	Logger               *slog.Logger
}

// Collector removes things that nobody wants. Make it with [New].
type Collector struct {
	deps Deps
	log  *slog.Logger
	// leftovers asks for a look for leftovers of pods, staged for one for staged volumes.
	leftovers, staged notify.Signal
	// removing has a place for each removal of a pod's leftovers, and removals counts them.
	removing chan struct{}
	removals sync.WaitGroup
	// shims, paths, mounts and links limit the log lines about what cannot be cleared; only rounds
	// uses them.
	shims, paths, mounts, links loglimit.Limiter
}

// New returns a collector; it does nothing before [Collector.Run].
func New(deps Deps) *Collector {
	return &Collector{
		deps: deps, log: deps.Logger, leftovers: notify.New(), staged: notify.New(),
		removing: make(chan struct{}, atOnce),
	}
}

// Run removes things that nobody wants, on each change of the pods and every minute, until ctx
// ends.
func (c *Collector) Run(ctx context.Context) error {
	var loops errgroup.Group
	loops.Go(func() error { return c.rounds(ctx) })
	loops.Go(func() error { return onEach(ctx, c.leftovers, c.prune) })
	loops.Go(func() error { return onEach(ctx, c.staged, c.unstage) })
	defer c.removals.Wait()
	return loops.Wait()
}

// onEach calls do after each notification, until ctx ends.
func onEach(ctx context.Context, asked notify.Signal, do func(context.Context)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-asked:
			do(ctx)
		}
	}
}

// rounds keeps the QoS cgroups up to date, and says when to look for what nobody wants.
func (c *Collector) rounds(ctx context.Context) error {
	due, tidied, last := time.Now().Add(leftoverDelay), time.Now(), time.Time{}
	tick := time.NewTimer(leftoverDelay)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.deps.Changed:
			if !retry.Sleep(ctx, time.Until(last.Add(apart))) {
				return nil
			}
		case <-c.deps.Interrupted:
			if soon := time.Now().Add(leftoverDelay); soon.Before(due) {
				due = soon
				tick.Reset(leftoverDelay)
			}
			continue
		case <-tick.C:
			due = time.Now().Add(period)
			tick.Reset(period)
			c.clearForgotten(ctx)
			c.trimDead(ctx)
			c.clearLinks(ctx)
			if time.Since(tidied) >= imageTidyPeriod {
				c.deps.Images.Tidy(ctx)
				tidied = time.Now()
			}
		}
		last = time.Now()
		c.clearMountTable(ctx)
		if err := c.deps.Cgroups.UpdateQoS(ctx, c.deps.Live()); err != nil && ctx.Err() == nil {
			c.log.Warn("QoS cgroups not brought up to date", "err", err)
		}
		if c.deps.Ready() {
			c.leftovers.Notify()
			c.staged.Notify()
		}
	}
}

// trimDead removes dead containers of which there are too many.
func (c *Collector) trimDead(ctx context.Context) {
	if err := c.deps.Containers.TrimDeadContainers(ctx); err != nil && ctx.Err() == nil {
		c.failed(err)
	}
}

// failed reports that dead containers or the leftovers of pods could not be removed, in the
// kubelet's words.
func (c *Collector) failed(err error) {
	c.deps.Event(v1.EventTypeWarning, "ContainerGCFailed", err.Error())
	c.log.Warn("Container garbage collection failed; it is tried again in a minute", "err", err)
}

// clearForgotten ends the processes, and removes the files, of which the runtime has lost track.
func (c *Collector) clearForgotten(ctx context.Context) {
	repairer := c.deps.Repairer
	if repairer == nil {
		return
	}
	_, err := repairer.EndForgottenShims(ctx)
	c.warn(ctx, &c.shims, "processes that the runtime has lost track of not ended; it is tried again each minute", err)
	_, err = repairer.RemoveForgottenPaths(ctx)
	c.warn(ctx, &c.paths, "files that the runtime has lost track of not removed; it is tried again each minute", err)
}

// clearMountTable unmounts what keeps the runtime from starting anything.
func (c *Collector) clearMountTable(ctx context.Context) {
	uids, err := c.deps.Volumes.ClearMountTable(ctx)
	for _, uid := range uids {
		c.log.Warn("a container has moved the directory of a subPath, or of a volume, so deep that runtimes could not read "+
			"the node's mount table; the containers that have it keep it, the node has unmounted it", "uid", uid)
	}
	c.warn(ctx, &c.mounts, "mount table not cleared of paths that are too long; it is tried again each minute", err)
}

// warn logs a failure that may last, unless limiter has logged it already.
func (c *Collector) warn(ctx context.Context, limiter *loglimit.Limiter, text string, err error) {
	switch {
	case ctx.Err() != nil:
	case err == nil:
		limiter.Recovered()
	case limiter.Allow(err, time.Now()):
		c.log.Warn(text, "err", err)
	}
}

// prune removes directories and cgroups of pods that have neither a worker nor anything in the
// runtime. prune looks for workers only after it has looked at the disk, so that it does not take
// the new directory of a new pod for a leftover. A pod's directory is made before the pod's cgroup,
// and shows that the pod was this agent's. prune leaves a cgroup without such a directory alone,
// because other agents, or a kubelet, may have pods below the same root. It is the same with logs.
//
// prune waits for places, and not for removals: one that hangs in the kernel keeps its place, and
// the others go on.
func (c *Collector) prune(ctx context.Context) {
	listed, err := c.deps.Observer.Relist(ctx)
	if err != nil {
		if ctx.Err() == nil {
			c.failed(err)
		}
		return
	}
	dirs, err := c.deps.Volumes.List(ctx)
	if err != nil {
		c.log.Warn("pod directories not listed; leftovers stay", "err", err)
		return
	}
	known := c.deps.Workers.Known()
	for _, uid := range dirs {
		_, inRuntime := listed[uid]
		if inRuntime || known[uid] || c.deps.Workers.Has(uid) || c.deps.Marks.Has(uid) {
			continue
		}
		select {
		case c.removing <- struct{}{}:
			c.deps.Marks.set(uid, true)
			c.removals.Go(func() { c.prunePod(ctx, uid) })
		case <-ctx.Done():
			return
		}
	}
	c.staged.Notify()
}

// unstage unstages the volumes that no pod has.
func (c *Collector) unstage(ctx context.Context) {
	if err := c.deps.Volumes.CSI().PruneStaged(ctx); err != nil && ctx.Err() == nil {
		c.log.Warn("volumes that no pod has not unstaged; it is tried again in a minute", "err", err)
	}
}

// prunePod removes the leftovers of a marked pod, unless the pod is wanted again: a static pod that
// comes back has its old UID. If the pod comes while prunePod is under way, the pod's syncs do
// nothing until prunePod has finished.
func (c *Collector) prunePod(ctx context.Context, uid types.UID) {
	defer func() {
		c.deps.Marks.set(uid, false)
		c.deps.Workers.Wake(uid)
		<-c.removing
		c.staged.Notify()
	}()
	if c.deps.Workers.Has(uid) { // a pod that comes from here on sees that it is being pruned
		return
	}
	if err := c.deps.Cgroups.RemovePod(ctx, uid); err != nil {
		c.report(uid, "cgroup", err)
		return // the directory shows who owns the cgroup, and the logs
	}
	if err := c.pruneLogs(ctx, uid); err != nil {
		c.report(uid, "logs", err)
		return
	}
	c.report(uid, "directory", c.deps.Volumes.Remove(ctx, uid))
}

func (c *Collector) report(uid types.UID, what string, err error) {
	if err != nil {
		c.log.Warn("leftover of an unknown pod not removed; it is tried again in a minute", "uid", uid, "what", what,
			"err", err)
		return
	}
	c.log.Info("leftover of an unknown pod removed", "uid", uid, "what", what)
}
