package eviction

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
)

// reclaim removes what is not needed from the file system of a signal. It reports whether no
// threshold is met any more.
func (m *Manager) reclaim(ctx context.Context, s Signal) bool {
	if m.deps.Reclaimer == nil || s.condition() != v1.NodeDiskPressure {
		return false
	}
	what := reclaimable(s, m.disks)
	if cleared := m.clearEvicted(ctx); !cleared && what == (reclaims{}) {
		return false
	}
	if what.containers {
		if err := m.deps.Reclaimer.DeleteDeadContainers(ctx); err != nil {
			m.log.Warn("dead containers not removed", "err", err)
		}
	}
	if what.images {
		if err := m.deps.Reclaimer.DeleteUnusedImages(ctx); err != nil {
			m.log.Warn("unused images not removed", "err", err)
		}
	}
	usage := m.deps.Stats.Node(ctx)
	return relieved(m.rules.thresholds, observe(&usage))
}

// clearEvicted removes what is left of evicted pods that have ended: their containers and logs may
// be what fills the disk, and nobody else should leave for them. A kubelet always removes them. It
// reports whether there are such pods.
func (m *Manager) clearEvicted(ctx context.Context) bool {
	found := false
	for uid, e := range m.deps.Pods.List() {
		if e.Phase != worker.Terminated || e.Stop == nil || !evicted(e.Stop) {
			continue
		}
		found = true
		if err := m.deps.Reclaimer.DeleteContainersOf(ctx, uid); err != nil {
			m.log.Warn("containers of an evicted pod not removed", "pod", pods.FullName(e.Pod), "uid", uid, "err", err)
		}
	}
	return found
}
