package cpus

import (
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
)

// Pinned reports whether a container has its CPUs for itself; with nil, whether a container of the
// pod has, or, in a pod with resources of its own, whether all containers have. A quota would only
// take CPU time from such a container that nobody else can use.
func (m *Manager) Pinned(pod *v1.Pod, c *v1.Container) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c != nil {
		return m.pinned(pod, c)
	}
	for c := range pods.Starting(pod) {
		if all := m.cfg.Rules.IsManaged(pod); m.pinned(pod, c) != all {
			return !all
		}
	}
	return m.cfg.Rules.IsManaged(pod)
}

// pinned is Pinned for a container; m.mu is held.
func (m *Manager) pinned(pod *v1.Pod, c *v1.Container) bool {
	_, has := m.assigned[pod.UID][c.Name]
	return has && (!m.cfg.Rules.IsManaged(pod) || m.exclusive(pod, c) > 0)
}
