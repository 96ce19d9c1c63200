package cpus

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/berthd/berth/agent/node/podlevel"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/internal/pods"
)

// whole returns how many CPUs a pod has as a whole; 0 if its containers are looked at one by one,
// or it does not request whole CPUs.
func (m *Manager) whole(pod *v1.Pod) int {
	if !m.cfg.Rules.Whole(pod) {
		return 0
	}
	return integer(pod.Spec.Resources.Requests.Cpu())
}

// pool returns an error if containers of a pod would share none of its CPUs.
func (m *Manager) pool(pod *v1.Pod, count int) error {
	return podlevel.Pool(pod, podlevel.Amounts{v1.ResourceCPU: uint64(count)}, func(c *v1.Container) podlevel.Amounts {
		if own := m.exclusive(pod, c); own > 0 {
			return podlevel.Amounts{v1.ResourceCPU: uint64(own)}
		}
		return nil
	})
}

// AllocatePod gives a pod its CPUs as a whole, those on the nodes of the hint first, and of these
// each container its part. A pod that has CPUs keeps them. A pod that does not request whole CPUs
// shares those of the node. After an error the caller calls [Manager.Release].
func (p *Pod) AllocatePod(_ context.Context, hint topology.Hint) error {
	m := p.m
	m.mu.Lock()
	defer m.mu.Unlock()
	count := m.whole(p.pod)
	_, has := m.pods[p.pod.UID]
	if !m.Static() || count == 0 || has || len(m.assigned[p.pod.UID]) > 0 {
		return nil
	}
	set, parts, err := p.wholePod(count, hint.Nodes)
	if err != nil {
		m.deps.Metrics.CPUsPinned(true)
		m.deps.Metrics.Allocated(v1.ResourceCPU, podlevel.FromPod, true)
		return err
	}
	m.pods[p.pod.UID], m.assigned[p.pod.UID] = set, parts
	m.shared = m.shared.Difference(set)
	m.countWhole(p.pod, set)
	m.changed.Notify()
	return m.save()
}

// wholePod chooses the CPUs of a pod, and the part of each container; m.mu is held.
func (p *Pod) wholePod(count int, nodes topology.Mask) (cpuset.CPUSet, map[string]cpuset.CPUSet, error) {
	if err := p.m.pool(p.pod, count); err != nil {
		return cpuset.New(), nil, err
	}
	set, err := p.choose(count, nodes)
	if err != nil {
		return cpuset.New(), nil, err
	}
	parts, err := p.m.parts(p.pod, set)
	return set, parts, err
}

// parts returns which of a pod's CPUs each container has. Who has none for itself shares those that
// nobody has: a sidecar or an app container those that are left in the end, an init container all
// but those of the sidecars before it.
func (m *Manager) parts(pod *v1.Pod, set cpuset.CPUSet) (map[string]cpuset.CPUSet, error) {
	out := map[string]cpuset.CPUSet{}
	left := set
	for c, ends := range pods.Starting(pod) {
		own := left
		if count := m.exclusive(pod, c); count > 0 {
			var err error
			if own, err = m.cfg.Machine.Take(left, count, m.cfg.Choose); err != nil {
				return nil, err
			}
			if !ends {
				left = left.Difference(own)
			}
		} else if !ends {
			continue
		}
		out[c.Name] = own
	}
	for c := range pods.Starting(pod) {
		if _, has := out[c.Name]; !has {
			out[c.Name] = left
		}
	}
	return out, nil
}

// countWhole counts the containers of a pod that got these CPUs as a whole.
func (m *Manager) countWhole(pod *v1.Pod, set cpuset.CPUSet) {
	m.countCache(set)
	for c := range pods.Starting(pod) {
		kind := podlevel.SharedPod
		if m.exclusive(pod, c) > 0 {
			kind = podlevel.ExclusivePod
			m.deps.Metrics.CPUsPinned(false)
		}
		m.deps.Metrics.Assigned(v1.ResourceCPU, kind)
		m.deps.Metrics.Allocated(v1.ResourceCPU, podlevel.FromPod, false)
	}
}
