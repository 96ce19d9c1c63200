package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
)

// revive lets evicted static pods run again once the node has no pressure: nobody else makes them
// again. A pod waits at least for the transition period, so that a pod that fills its volume again
// and again does not do it without a pause.
func (m *Manager) revive() {
	if m.cfg.Cluster || len(m.deps.Pressure.Conditions()) > 0 {
		return
	}
	again := false
	for uid, e := range m.deps.Pods.List() {
		if !e.Waiting && !e.Unwanted && e.Phase == worker.Terminated && evicted(e.Stop) && ComesBack(e.Pod) &&
			time.Since(e.Stop.Since) >= m.cfg.Transition {
			m.log.Info("an evicted pod runs again", "pod", pods.FullName(e.Pod), "uid", uid)
			m.deps.Pods.Remove(uid)
			again = true
		}
	}
	if again {
		m.deps.Again()
	}
}

// evicted reports whether a pod ends because of an eviction.
func evicted(stop *worker.Stop) bool {
	return stop != nil && (stop.Cause == worker.CauseEvicted || stop.Cause == worker.CauseOverLimit)
}

// ComesBack reports whether a pod that was evicted runs again on this node: a static pod whose
// restart policy is not Never. In a cluster, no static pod is evicted.
func ComesBack(pod *v1.Pod) bool {
	return pods.Static(pod) && pod.Spec.RestartPolicy != v1.RestartPolicyNever
}
