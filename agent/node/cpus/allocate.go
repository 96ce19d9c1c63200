package cpus

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/berthd/berth/agent/node/cpus/choose"
	"github.com/berthd/berth/agent/node/podlevel"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/internal/pods"
)

// SMTAlignmentError is the error of a container that cannot have whole cores, in the kubelet's
// words.
type SMTAlignmentError struct{ text string }

// Error says why.
func (e *SMTAlignmentError) Error() string { return "SMT Alignment Error: " + e.text }

// Later is the error of a pod that may get its CPUs when the pods have ended that are being ended.
type Later struct{ For string }

// Error says what the pod waits for.
func (l *Later) Error() string { return l.For }

// Pod gives the containers of one pod their CPUs, one after the other. Make it with
// [Manager.Begin]. Only one goroutine may use it.
type Pod struct {
	m   *Manager
	pod *v1.Pod
	// reusable are the CPUs of the pod's init containers that have ended when the next container
	// starts.
	reusable cpuset.CPUSet
}

// Begin begins to give a pod its CPUs. Pods that have ended lose theirs.
func (m *Manager) Begin(pod *v1.Pod) *Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetEnded(pod.UID)
	return &Pod{m: m, pod: pod, reusable: cpuset.New()}
}

// Allocate gives a container its CPUs; a container that has some keeps them. Those on the nodes of
// the hint are taken first. ends says that the container ends before the next one starts, which may
// have the same CPUs. After an error the caller calls [Manager.Release].
func (p *Pod) Allocate(_ context.Context, c *v1.Container, ends bool, hint topology.Hint) error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	set, has := p.m.assigned[p.pod.UID][c.Name]
	if !has && p.m.Static() && p.m.exclusive(p.pod, c) > 0 {
		var err error
		if set, err = p.allocate(c, hint.Nodes); err != nil {
			return err
		}
	}
	if p.reusable = p.reusable.Difference(set); ends {
		p.reusable = p.reusable.Union(set)
	}
	if has || set.IsEmpty() {
		return nil
	}
	p.m.changed.Notify()
	return p.m.save()
}

// allocate chooses the CPUs of a container; m.mu is held.
func (p *Pod) allocate(c *v1.Container, nodes topology.Mask) (set cpuset.CPUSet, err error) {
	m := p.m
	defer func() { m.count(set, err != nil) }()
	if set, err = p.choose(m.exclusive(p.pod, c), nodes); err != nil {
		return set, err
	}
	if m.assigned[p.pod.UID] == nil {
		m.assigned[p.pod.UID] = map[string]cpuset.CPUSet{}
	}
	m.assigned[p.pod.UID][c.Name] = set
	m.shared = m.shared.Difference(set)
	return set, nil
}

// choose chooses CPUs of those that nobody has, and that the next container may use again; m.mu is
// held.
func (p *Pod) choose(count int, nodes topology.Mask) (cpuset.CPUSet, error) {
	m := p.m
	if err := m.aligned(count); err != nil {
		return cpuset.New(), err
	}
	available := m.shared.Difference(m.reserved).Union(p.reusable)
	set, err := m.take(available, count, nodes)
	if few := (*choose.TooFew)(nil); errors.As(err, &few) {
		holders, _ := m.deps.Holders()
		if available.Union(m.leaving(holders)).Size() >= count {
			return set, &Later{"waiting until pods that are being removed give back their CPUs"}
		}
	}
	return set, err
}

// count counts a container that asked for CPUs, and how those are aligned that it got.
func (m *Manager) count(set cpuset.CPUSet, failed bool) {
	m.deps.Metrics.CPUsPinned(failed)
	if m.cfg.Choose.WholeCores {
		m.deps.Metrics.CPUsAligned("physical_cpu", failed)
	}
	if m.cfg.Rules.Managed {
		m.deps.Metrics.Allocated(v1.ResourceCPU, podlevel.FromNode, failed)
	}
	if failed {
		return
	}
	m.countCache(set)
	if m.cfg.Rules.Managed {
		m.deps.Metrics.Assigned(v1.ResourceCPU, podlevel.ExclusiveNode)
	}
}

// countCache counts CPUs if they have one last-level cache.
func (m *Manager) countCache(set cpuset.CPUSet) {
	caches := map[int]bool{}
	for _, c := range m.cfg.Machine {
		if set.Contains(c.ID) {
			caches[c.Cache] = true
		}
	}
	if len(caches) == 1 {
		m.deps.Metrics.CPUsAligned("uncore_cache", false)
	}
}

// take chooses CPUs, those on the given NUMA nodes first, if there are any.
func (m *Manager) take(available cpuset.CPUSet, count int, nodes topology.Mask) (cpuset.CPUSet, error) {
	near := cpuset.New()
	if nodes != 0 {
		aligned := available.Intersection(m.on(nodes))
		var err error
		if near, err = m.cfg.Machine.Take(aligned, min(count, aligned.Size()), m.cfg.Choose); err != nil {
			return near, err
		}
	}
	rest, err := m.cfg.Machine.Take(available.Difference(near), count-near.Size(), m.cfg.Choose)
	return near.Union(rest), err
}

// allocateMissing gives the containers of a pod the CPUs that they should have and do not have,
// because the pod was admitted under another policy.
func (m *Manager) allocateMissing(pod *v1.Pod) error {
	if !m.Wants(pod) {
		return nil
	}
	p := m.Begin(pod)
	if m.whole(pod) > 0 {
		return p.AllocatePod(context.Background(), topology.Hint{})
	}
	for c, ends := range pods.Starting(pod) {
		if err := p.Allocate(context.Background(), c, ends, topology.Hint{}); err != nil {
			return err
		}
	}
	return nil
}
