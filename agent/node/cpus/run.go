package cpus

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/lifecycle"
)

// Runtime moves running containers to other CPUs.
type Runtime interface {
	UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error
}

// Instance is a container that runs.
type Instance struct {
	UID           types.UID
	Container, ID string
}

// Run gives running containers the CPUs that they should have, until ctx ends: after each change,
// and after each period, in case a container was made during a change.
func (m *Manager) Run(ctx context.Context) error {
	if !m.Static() {
		return lifecycle.Idle(ctx)
	}
	tick := time.NewTicker(m.cfg.Period)
	defer tick.Stop()
	for {
		m.reconcile(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-m.changed:
		case <-tick.C:
		}
	}
}

// reconcile compares what containers have with what they should have, and moves those that have
// something else. A container that cannot be moved is tried again.
func (m *Manager) reconcile(ctx context.Context) {
	m.mu.Lock()
	m.forgetEnded("")
	m.mu.Unlock()
	has := map[string]string{}
	for _, in := range m.deps.Instances() {
		m.mu.Lock()
		want, made := m.of(in.UID, in.Container).String(), m.made[in.UID][in.Container]
		m.mu.Unlock()
		last, known := m.last[in.ID]
		if !known {
			last = made
		}
		has[in.ID] = last
		if last == want || want == "" || ctx.Err() != nil {
			continue
		}
		err := m.deps.Runtime.UpdateContainerResources(ctx, in.ID,
			&runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: want}})
		switch {
		case err == nil:
			has[in.ID] = want
		case !errdefs.IsNotFound(err) && ctx.Err() == nil: // else it has ended
			m.deps.Logger.Warn("container not moved to other CPUs; it is tried again", "container", in.Container,
				"uid", in.UID, "id", in.ID, "cpus", want, "err", err)
		}
	}
	m.last = has
}
