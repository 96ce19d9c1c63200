package steps

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Cgroup has the pod's cgroup.
type Cgroup struct {
	Cgroups interface {
		// EnsurePod makes the pod's cgroup and returns the runtime's name for it.
		EnsurePod(ctx context.Context, pod *v1.Pod) (parent string, err error)
		// RemovePod removes the pod's cgroup, and ends the processes that are left in it.
		RemovePod(ctx context.Context, uid types.UID) error
	}
	Events EventSink
}

// Name is "cgroup".
func (Cgroup) Name() string { return "cgroup" }

// Ensure makes the cgroup with the pod's limits.
func (c Cgroup) Ensure(ctx context.Context, p *Sync) (Outcome, error) {
	pod := p.Pod
	if p.Limits != nil {
		pod = p.Limits
	}
	parent, err := c.Cgroups.EnsurePod(ctx, pod)
	p.CgroupParent = parent
	if err != nil && ctx.Err() == nil {
		c.Events.Pod(p.Pod, "", v1.EventTypeWarning, "FailedCreatePodContainer",
			fmt.Sprintf("unable to ensure pod container exists: %v", err))
	}
	return Outcome{}, err
}

// Remove removes the cgroup.
func (c Cgroup) Remove(ctx context.Context, p *Sync) (Outcome, error) {
	return Outcome{}, c.Cgroups.RemovePod(ctx, p.Pod.UID)
}
