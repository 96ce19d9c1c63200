package eviction

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
)

// revive lets evicted and preempted static pods run again once the node has no pressure: nobody
// else makes them again. An evicted pod waits at least for the transition period, so that a pod
// that fills its volume again and again does not do it without a pause. A preempted pod waits
// until there is room for it.
func (m *Manager) revive() {
	if m.cfg.Cluster || len(m.deps.Pressure.Conditions()) > 0 {
		return
	}
	var back, preempted []*v1.Pod
	for _, e := range m.deps.Pods.List() {
		if e.Waiting || e.Unwanted || e.Phase != worker.Terminated || e.Stop == nil || !ComesBack(e.Pod) {
			continue
		}
		switch {
		case evicted(e.Stop) && time.Since(e.Stop.Since) >= m.cfg.Transition:
			back = append(back, e.Pod)
		case e.Stop.Cause == worker.CausePreempted:
			preempted = append(preempted, e.Pod)
		}
	}
	slices.SortFunc(preempted, func(x, y *v1.Pod) int {
		return cmp.Or(cmp.Compare(pods.Priority(y), pods.Priority(x)), cmp.Compare(pods.FullName(x), pods.FullName(y)))
	})
	if len(preempted) > 0 {
		back = append(back, m.deps.Fitting(preempted)...)
	}
	for _, pod := range back {
		m.log.Info("a pod that had to leave runs again", "pod", pods.FullName(pod), "uid", pod.UID)
		m.deps.Pods.Remove(pod.UID)
	}
	if len(back) > 0 {
		m.deps.Again()
	}
}

// evicted reports whether a pod ends because of an eviction.
func evicted(stop *worker.Stop) bool {
	return stop.Cause == worker.CauseEvicted || stop.Cause == worker.CauseOverLimit
}

// ComesBack reports whether a pod that was evicted or preempted runs again on a node without a
// cluster: a static pod whose restart policy is not Never. In a cluster, no static pod is evicted.
func ComesBack(pod *v1.Pod) bool {
	return pods.Static(pod) && pod.Spec.RestartPolicy != v1.RestartPolicyNever
}
