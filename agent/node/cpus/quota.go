package cpus

import v1 "k8s.io/api/core/v1"

// Pinned reports whether a container has its CPUs for itself; with nil, whether a container of the
// pod has. A quota would only take CPU time from such a container that nobody else can use.
func (m *Manager) Pinned(pod *v1.Pod, c *v1.Container) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c == nil {
		return len(m.assigned[pod.UID]) > 0
	}
	_, has := m.assigned[pod.UID][c.Name]
	return has
}
