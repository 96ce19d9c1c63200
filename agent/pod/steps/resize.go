package steps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/resize"
	"github.com/berthd/berth/cgroups"
)

// Reasons of the events about a resize, as upstream spells them.
const (
	reasonResizeCompleted = "ResizeCompleted"
	reasonResizeError     = "ResizeError"
)

// Resize gives running containers what their pod was newly allocated.
type Resize struct {
	Runtime interface {
		UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error
	}
	Cgroups interface {
		// EnsurePod limits the pod's cgroup to the pod's limits.
		EnsurePod(ctx context.Context, pod *v1.Pod) (parent string, err error)
		// ContainerResources are a container's settings.
		ContainerResources(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources
	}
	// Usage returns the memory in bytes that a pod, or with an id a container, cannot give back at
	// once. It is nil if nobody can measure that.
	Usage  func(pod *v1.Pod, containerID string) (int64, error)
	Events EventSink
	// Updated is called for each container that has new resources.
	Updated func(containerID string)
	// Done is called after a resize was completed.
	Done func()
}

// Name is "resize".
func (Resize) Name() string { return "resize" }

// Ensure updates the containers, first those that get less. Then it limits the pod's cgroup to what
// the pod has. Containers that need a restart are stopped by plan.
func (s Resize) Ensure(ctx context.Context, p *Sync) (Outcome, error) {
	state := p.Record.Resize
	if state == nil || !state.InProgress {
		return Outcome{}, nil
	}
	running := Instances(&p.Observed)
	updates := state.Updates(p.Pod, running)
	if err := s.feasible(p, state, updates); err != nil {
		return Outcome{}, s.failed(ctx, p, err)
	}
	var waits []string
	for _, u := range updates {
		if u.Restart || p.Busy(u.ID) == plan.Stopping {
			waits = append(waits, u.Name)
			continue
		}
		if err := s.update(ctx, p, u); err != nil {
			return Outcome{}, s.failed(ctx, p, err)
		}
	}
	if len(waits) > 0 {
		return Outcome{Waiting: "containers to restart with their new resources: " + strings.Join(waits, ", ")}, nil
	}
	return Outcome{Note: "resized"}, s.complete(ctx, p)
}

// Instances are the containers that run.
func Instances(o *plan.Observed) []resize.Instance {
	var out []resize.Instance
	for _, c := range o.Running() {
		out = append(out, resize.Instance{ID: c.Id, Name: c.Name()})
	}
	return out
}

// feasible checks, before anything is changed, that no memory limit comes below what is in use.
func (s Resize) feasible(p *Sync, state *resize.State, updates []resize.Update) error {
	if s.Usage == nil {
		return nil
	}
	var errs []error
	below := func(id string, limit int64, what string) {
		used, err := s.Usage(p.Pod, id)
		switch {
		case errors.Is(err, fs.ErrNotExist): // ended, or no cgroups are made
		case err != nil:
			errs = append(errs, err)
		case used >= limit:
			errs = append(errs,
				fmt.Errorf("attempting to set %s memory limit (%d) below current usage (%d)", what, limit, used))
		}
	}
	options := cgroups.Options{}
	before, after := cgroups.PodLimits(state.Before(p.Pod, Instances(&p.Observed)), options).Memory,
		cgroups.PodLimits(p.Pod, options).Memory
	if after > 0 && (before <= 0 || after < before) {
		below("", after, "pod")
	}
	for _, u := range updates {
		if limit, shrinks := u.ShrinksMemory(); shrinks && !u.Restart {
			below(u.ID, limit, fmt.Sprintf("container %q", u.Name))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("cannot decrease memory limits: %w", utilerrors.NewAggregate(errs))
	}
	return nil
}

// update gives one container its resources. It records that before anything else is done.
func (s Resize) update(ctx context.Context, p *Sync, u resize.Update) error {
	resources := &runtimeapi.ContainerResources{Linux: s.Cgroups.ContainerResources(p.Pod, u.Container)}
	p.Changed = true
	err := s.Runtime.UpdateContainerResources(ctx, u.ID, resources)
	s.Updated(u.ID) // also if only the answer was lost
	if err != nil {
		return fmt.Errorf("updating the resources of container %s: %w", u.Name, err)
	}
	p.Record.Resize.Actuated[u.ID] = u.Want
	return p.Save()
}

// complete shrinks the pod's cgroup to what the pod has, and ends the resize.
func (s Resize) complete(ctx context.Context, p *Sync) error {
	if _, err := s.Cgroups.EnsurePod(ctx, p.Pod); err != nil {
		return s.failed(ctx, p, err)
	}
	state := p.Record.Resize
	p.Limits = nil
	if state.Pending != nil { // the pod asks for yet other resources, for which there is no room
		rest := *state
		rest.InProgress, rest.Error, rest.Pod = false, "", p.Pod.Spec.Resources.DeepCopy()
		p.Record.Resize = &rest
	} else {
		p.Record.Resize = nil
	}
	if err := p.Save(); err != nil {
		p.Record.Resize = state
		return err
	}
	s.Events.Pod(p.Pod, "", v1.EventTypeNormal, reasonResizeCompleted,
		resize.Message("Pod resize completed", p.Pod, ""))
	s.Done()
	return nil
}

// failed reports with an event what keeps the pod from being resized, once for each reason.
func (s Resize) failed(ctx context.Context, p *Sync, err error) error {
	if ctx.Err() == nil && p.Record.Resize.Error != err.Error() {
		p.Record.Resize.Error = err.Error()
		s.Events.Pod(p.Pod, "", v1.EventTypeWarning, reasonResizeError,
			resize.Message("Pod resize error", p.Pod, err.Error()))
	}
	return fmt.Errorf("resizing the pod: %w", err)
}

// Remove has nothing to give back.
func (Resize) Remove(context.Context, *Sync) (Outcome, error) { return Outcome{}, nil }
