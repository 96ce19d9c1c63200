package allocation

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/internal/pods"
)

// share gives the containers of one pod one kind of pieces, one container after the other.
type share interface {
	// Hints returns on which NUMA nodes a container can get its pieces, PodHints on which all
	// containers together can.
	Hints(c *v1.Container) [][]topology.Hint
	PodHints() [][]topology.Hint
	// Allocate gives a container its pieces. ends says that the container ends before the next one
	// starts, which may have the same pieces.
	Allocate(ctx context.Context, c *v1.Container, ends bool, hint topology.Hint) error
}

// whole is a share that can give a pod with resources of its own its pieces as a whole.
type whole interface {
	AllocatePod(ctx context.Context, hint topology.Hint) error
}

// later is the error of a pod that may get its pieces from the same NUMA nodes when the pods have
// ended that are being ended.
type later struct{}

// Error says what the pod waits for.
func (*later) Error() string {
	return "waiting until pods that are being removed give back their NUMA nodes"
}

// give gives the containers of a pod their pieces: container by container, as a kubelet does. If
// the pieces have to be on the same NUMA nodes, one pod comes after the other, so that nobody takes
// what was just found to be free. A device plugin that hangs then holds up all pods that want
// pieces, until its time limit. took is the time without that of the pods before.
func (m *Manager) give(
	ctx context.Context, pod *v1.Pod, running func(container string) bool,
) (took time.Duration, err error) {
	if m.topology.Aligns() {
		m.aligning.Lock()
		defer m.aligning.Unlock()
	}
	began := time.Now()
	err = m.share(ctx, pod, m.shares(pod, running))
	took = time.Since(began)
	if apart := (*topology.Error)(nil); errors.As(err, &apart) && m.leaving() {
		return took, &later{}
	}
	return took, err
}

// count counts a pod on which admission has decided, once, as a kubelet does: under each policy,
// and also a pod that was not asked about because it wants no pieces. Without pieces, nothing is
// apart.
func (m *Manager) count(pod *v1.Pod, a answer, asked bool) {
	m.deps.Metrics.Aligned(m.topology.Aligns() && a.refused != nil, a.took)
	switch {
	case asked: // share has counted the containers
	case m.topology.ByPod:
		m.guaranteed(true)
	default:
		for range pods.Starting(pod) {
			m.guaranteed(true)
		}
	}
}

// shares returns what gives out the pieces, in a kubelet's order.
func (m *Manager) shares(pod *v1.Pod, running func(container string) bool) []share {
	return []share{m.Devices.Begin(pod, running), m.cpus.Begin(pod), m.memory.Begin(pod)}
}

// leaving reports whether pods that are being ended have pieces.
func (m *Manager) leaving() bool {
	return m.Devices.Leaving() || m.cpus.Leaving() || m.memory.Leaving()
}

func (m *Manager) share(ctx context.Context, pod *v1.Pod, shares []share) error {
	var common topology.Hint
	byPod := m.topology.Aligns() && m.topology.ByPod
	byContainer := m.topology.Aligns() && !m.topology.ByPod
	if byPod {
		var err error
		if common, err = m.merge(pod, shares, share.PodHints); err != nil {
			return err
		}
		if shares, err = m.shareWhole(ctx, pod, shares, common); err != nil {
			return err
		}
	}
	for c, ends := range pods.Starting(pod) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		hint := common
		if byContainer {
			var err error
			if hint, err = m.merge(pod, shares, func(s share) [][]topology.Hint { return s.Hints(c) }); err != nil {
				return err
			}
		}
		for _, s := range shares {
			if err := s.Allocate(ctx, c, ends, hint); err != nil {
				return err
			}
		}
		if byContainer {
			m.guaranteed(true)
		}
	}
	if byPod {
		m.guaranteed(true)
	}
	return nil
}

// shareWhole gives a pod with resources of its own its pieces as a whole, where it can have them
// so. It returns the shares that give theirs container by container.
func (m *Manager) shareWhole(
	ctx context.Context, pod *v1.Pod, shares []share, hint topology.Hint,
) (single []share, err error) {
	if !m.rules.Whole(pod) {
		return shares, nil
	}
	for _, s := range shares {
		w, ok := s.(whole)
		if !ok {
			single = append(single, s)
			continue
		}
		if err := w.AllocatePod(ctx, hint); err != nil {
			return nil, err
		}
	}
	return single, nil
}

// merge returns the NUMA nodes that suit all pieces of a container or a pod.
func (m *Manager) merge(
	pod *v1.Pod, shares []share, of func(share) [][]topology.Hint,
) (topology.Hint, error) {
	var all [][]topology.Hint
	for _, s := range shares {
		all = append(all, of(s)...)
	}
	hint, ok := m.topology.Merge(all)
	if !ok {
		m.guaranteed(false)
		return topology.Hint{}, &topology.Error{PodLevel: m.podLevel(pod)}
	}
	return hint, nil
}

// podLevel says, in the kubelet's words, how a pod with resources of its own cannot be aligned;
// nothing for other pods.
func (m *Manager) podLevel(pod *v1.Pod) string {
	switch {
	case !m.rules.IsManaged(pod):
		return ""
	case m.rules.ByPod:
		return "pod with pod-level resources failed admission under pod-scope topology manager"
	}
	return "pod with pod-level resources failed admission with a container-level topology manager"
}

// guaranteed counts a container or a pod that has its pieces on one NUMA node, or cannot have them
// there, if the policy demands that.
func (m *Manager) guaranteed(ok bool) {
	if m.topology.Guarantees() {
		m.deps.Metrics.Guaranteed(m.topology.Scope(), !ok)
	}
}
