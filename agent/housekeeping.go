package agent

import (
	"context"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/cri"
)

// housekeepingPeriod is how often leftovers are looked for and the QoS cgroups brought up to date when nothing changed (FEATURES 2.2: on
// change, and every minute).
const housekeepingPeriod = time.Minute

// housekeeping prunes what nobody wants, on each change of the desired pods and every minute.
func (a *Agent) housekeeping(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.desired.changed:
		case <-time.After(housekeepingPeriod):
		}
		if err := a.deps.Cgroups.UpdateQoS(ctx, a.livePods()); err != nil && ctx.Err() == nil {
			a.log.Warn("QoS cgroups not brought up to date", "err", err)
		}
		if a.desired.ready("") {
			a.prune(ctx)
		}
	}
}

// livePods returns the pods that have not ended.
func (a *Agent) livePods() []*v1.Pod {
	var out []*v1.Pod
	for uid, e := range a.workers.List() {
		if s, ok := a.status.Get(uid); ok && terminal(s.Status) || e.Waiting || placeholder(e.Pod) {
			continue
		}
		out = append(out, e.Pod)
	}
	return out
}

// prune removes cgroups and directories of pods that have neither a worker nor anything in the runtime. It looks for workers after it has looked at
// the disk, so that what a new pod just made is not taken for a leftover.
func (a *Agent) prune(ctx context.Context) {
	listed, err := a.observer.Relist(ctx)
	if err != nil {
		return
	}
	dirs, err := a.volumes.List(ctx)
	if err != nil {
		a.log.Warn("pod directories not listed; leftovers stay", "err", err)
	}
	cgroups, err := a.deps.Cgroups.List(ctx)
	if err != nil {
		a.log.Warn("pod cgroups not listed; leftovers stay", "err", err)
	}
	queued := a.workers.List()
	orphan := func(uid podUID) bool {
		_, hadWorker := queued[uid]
		_, hasWorker := a.workers.Get(uid)
		_, inRuntime := listed[uid]
		return !hadWorker && !hasWorker && !inRuntime
	}
	for _, uid := range cgroups {
		if orphan(uid) {
			a.pruned(uid, "cgroup", a.deps.Cgroups.RemovePod(ctx, uid))
		}
	}
	for _, uid := range dirs {
		if orphan(uid) {
			a.pruned(uid, "directory", a.volumes.Remove(ctx, uid))
			a.pruneLogs(ctx, uid)
		}
	}
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
