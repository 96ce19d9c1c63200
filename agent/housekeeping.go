package agent

import (
	"context"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/tasks"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/cri"
)

const (
	// housekeepingPeriod is how often leftovers are looked for and the QoS cgroups brought up to date when nothing changed (FEATURES 2.2: on
	// change, and every minute).
	housekeepingPeriod = time.Minute
	// housekeepingApart is the least time between two rounds: while many pods come or go at once, one round does for all of them.
	housekeepingApart = time.Second
	// leftoverDelay is after how long they are looked for after a start, a failed start of a sandbox, or the runtime's return: what was cut off in the
	// middle has come to rest by then.
	leftoverDelay = 10 * time.Second
	// imageTidyPeriod is how often it is looked whether images are gone whose pulls are on record.
	imageTidyPeriod = time.Hour
	// pruneWait is when a pass that met the pruning of its pod is made again, should nobody wake it.
	pruneWait = time.Second
)

// forgetful is a runtime that may lose track of processes, network namespaces and folders of its own, and can be rid of those.
type forgetful interface {
	EndForgottenShims(ctx context.Context) (int, error)
	RemoveForgotten(ctx context.Context) (int, error)
}

// housekeeping prunes what nobody wants, on each change of the desired pods and every minute.
func (a *Agent) housekeeping(ctx context.Context) error {
	due, tidied, last := time.Now().Add(leftoverDelay), time.Now(), time.Time{}
	tick := time.NewTimer(leftoverDelay)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.desired.changed:
			if !tasks.Sleep(ctx, time.Until(last.Add(housekeepingApart))) {
				return nil
			}
		case <-a.leftovers:
			if soon := time.Now().Add(leftoverDelay); soon.Before(due) {
				due = soon
				tick.Reset(leftoverDelay)
			}
			continue
		case <-tick.C:
			due = time.Now().Add(housekeepingPeriod)
			tick.Reset(housekeepingPeriod)
			a.clearForgotten(ctx)
			if time.Since(tidied) >= imageTidyPeriod {
				a.images.Tidy(ctx)
				tidied = time.Now()
			}
		}
		last = time.Now()
		if err := a.deps.Cgroups.UpdateQoS(ctx, a.livePods()); err != nil && ctx.Err() == nil {
			a.log.Warn("QoS cgroups not brought up to date", "err", err)
		}
		if a.desired.ready("") {
			a.prune(ctx)
		}
	}
}

// expectLeftovers has housekeeping look soon: something was cut off in the middle.
func (a *Agent) expectLeftovers() { ring(a.leftovers) }

// clearForgotten ends and removes what the runtime has lost track of, where it is one that does.
func (a *Agent) clearForgotten(ctx context.Context) {
	runtime, ok := a.deps.Runtime.(forgetful)
	if !ok {
		return
	}
	if _, err := runtime.EndForgottenShims(ctx); err != nil && ctx.Err() == nil {
		a.log.Warn("processes that the runtime has lost track of not ended; it is tried again in a minute", "err", err)
	}
	if _, err := runtime.RemoveForgotten(ctx); err != nil && ctx.Err() == nil {
		a.log.Warn("files that the runtime has lost track of not removed; it is tried again in a minute", "err", err)
	}
}

// livePods returns the pods that have not ended.
func (a *Agent) livePods() []*v1.Pod {
	var out []*v1.Pod
	for uid, e := range a.workers.List() {
		if s, ok := a.status.Get(uid); ok && terminal(s.Status) || e.Waiting || placeholder(e.Pod) {
			continue
		}
		out = append(out, a.allocations.of(e.Pod))
	}
	return out
}

// prune removes directories and cgroups of pods that have neither a worker nor anything in the runtime. It looks for workers after it has looked at
// the disk, so that what a new pod just made is not taken for a leftover. A pod's directory is made before its cgroup, and shows that it was this agent's: a cgroup
// without one is left alone, as other agents, or a kubelet, may have pods below the same root.
func (a *Agent) prune(ctx context.Context) {
	listed, err := a.observer.Relist(ctx)
	if err != nil {
		return
	}
	dirs, err := a.volumes.List(ctx)
	if err != nil {
		a.log.Warn("pod directories not listed; leftovers stay", "err", err)
		return
	}
	queued := a.workers.List()
	for _, uid := range dirs {
		_, hadWorker := queued[uid]
		_, hasWorker := a.workers.Get(uid)
		_, inRuntime := listed[uid]
		if hadWorker || hasWorker || inRuntime {
			continue
		}
		a.prunePod(ctx, uid)
	}
	if err := a.volumes.CSI().PruneStaged(ctx); err != nil && ctx.Err() == nil {
		a.log.Warn("volumes that no pod has not unstaged; it is tried again in a minute", "err", err)
	}
}

// prunePod removes what is left of a pod, unless it is wanted again: a static pod that comes back has the UID that it had. Passes over one that comes while this is
// under way do nothing until it is done.
func (a *Agent) prunePod(ctx context.Context, uid podUID) {
	a.pruning.add(uid)
	defer func() {
		a.pruning.remove(uid)
		a.workers.Wake(uid)
	}()
	if _, came := a.workers.Get(uid); came { // one that comes from here on sees that the pod is being pruned
		return
	}
	if err := a.deps.Cgroups.RemovePod(ctx, uid); err != nil {
		a.pruned(uid, "cgroup", err)
		return // the directory shows whose the cgroup is
	}
	a.pruned(uid, "directory", a.volumes.Remove(ctx, uid))
	a.pruneLogs(ctx, uid)
}

// pruneLogs removes the log directories of a pod whose own directory was a leftover. Others' logs are left alone: agents may share the place.
func (a *Agent) pruneLogs(ctx context.Context, uid podUID) {
	root := a.cfg.Kubelet.PodLogsDir
	entries, err := os.ReadDir(root)
	if err != nil {
		a.log.Warn("log directories not listed; leftovers stay", "err", err)
		return
	}
	for _, e := range entries {
		if id, ok := cri.ParsePodLogDir(e.Name()); ok && id.UID == uid {
			a.pruned(uid, "log directory", volumes.RemoveDir(ctx, filepath.Join(root, e.Name())))
		}
	}
}

func (a *Agent) pruned(uid podUID, what string, err error) {
	if err != nil {
		a.log.Warn("leftover of an unknown pod not removed; it is tried again in a minute", "uid", uid, "what", what, "err", err)
		return
	}
	a.log.Info("leftover of an unknown pod removed", "uid", uid, "what", what)
}

// terminal reports whether a status says that the pod has ended for good.
func terminal(s *v1.PodStatus) bool {
	return s.Phase == v1.PodSucceeded || s.Phase == v1.PodFailed
}
