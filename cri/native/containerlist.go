package native

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/internal/classify"
)

// ContainerStatus implements [cri.ContainerRuntime].
func (r *Runtime) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := r.store.container(id)
	if err != nil {
		return nil, err
	}
	record := c.snapshot()
	config := record.Config.of
	groups := make([]int64, 0, len(record.User.Groups))
	for _, g := range record.User.Groups {
		groups = append(groups, int64(g))
	}
	return &runtimeapi.ContainerStatus{
		Id: id, Metadata: config.GetMetadata(), State: record.state(), CreatedAt: record.CreatedAt,
		StartedAt: record.StartedAt, FinishedAt: record.FinishedAt, ExitCode: record.ExitCode,
		Image: config.GetImage(), ImageRef: record.ImageRef, ImageId: record.ImageID, Reason: record.Reason,
		Message: record.Message, Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
		Mounts: config.GetMounts(), LogPath: record.LogPath, StopSignal: signalOf(record.StopSignal),
		Resources: &runtimeapi.ContainerResources{Linux: config.GetLinux().GetResources()},
		User: &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{
			Uid: int64(record.User.UID), Gid: int64(record.User.GID), SupplementalGroups: groups,
		}},
	}, nil
}

// ListContainers implements [cri.ContainerRuntime].
func (r *Runtime) ListContainers(
	ctx context.Context, filter *runtimeapi.ContainerFilter,
) ([]*runtimeapi.Container, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var out []*runtimeapi.Container
	for _, c := range r.store.containersOf(filter.GetPodSandboxId()) {
		record := c.snapshot()
		item := &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandboxID, Metadata: c.config.GetMetadata(), Image: c.config.GetImage(),
			ImageRef: record.ImageRef, ImageId: record.ImageID, State: record.state(), CreatedAt: record.CreatedAt,
			Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		}
		if (filter.GetId() == "" || filter.GetId() == item.Id) &&
			(filter.GetState() == nil || filter.GetState().GetState() == item.State) &&
			selects(filter.GetLabelSelector(), item.Labels) {
			out = append(out, item)
		}
	}
	slices.SortFunc(out, func(a, b *runtimeapi.Container) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
	return out, nil
}

// UpdateContainerResources implements [cri.ContainerRuntime]. A container that does not run yet
// starts with the new limits.
func (r *Runtime) UpdateContainerResources(
	ctx context.Context, id string, asked *runtimeapi.ContainerResources,
) error {
	c, err := r.store.container(id)
	if err != nil {
		return err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	now, err := r.updateLimits(ctx, c, asked.GetLinux(), func() (*specs.LinuxResources, error) {
		limits := resources(asked.GetLinux())
		if r.plugins == nil {
			return limits, nil
		}
		wanted, err := r.plugins.UpdateContainer(ctx, id, api.FromOCILinuxResources(limits, nil))
		if err != nil {
			return nil, err
		}
		return r.limitsFrom(wanted), nil
	})
	if err != nil {
		return err
	}
	r.plugins.PostUpdateContainer(ctx, id, api.FromOCILinuxResources(now, nil))
	return nil
}

// updateLimits changes limits of a container, by those that decide returns while nobody else
// changes the container. asked is what of them a caller of the CRI has asked for. It returns all
// that the container has then.
func (r *Runtime) updateLimits(
	ctx context.Context, c *container, asked *runtimeapi.LinuxContainerResources,
	decide func() (*specs.LinuxResources, error),
) (now *specs.LinuxResources, err error) {
	if err := r.store.takeContainer(ctx, c); err != nil {
		return nil, err
	}
	defer c.turn.give()
	record := c.snapshot()
	if record.state() == runtimeapi.ContainerState_CONTAINER_EXITED {
		return nil, classify.As(errdefs.ErrFailedPrecondition, fmt.Sprintf("container %s has ended", c.id))
	}
	made, err := r.client.LoadContainer(ctx, c.id)
	if err != nil {
		return nil, fmt.Errorf("update container %s: %w", c.id, foreign(err))
	}
	limits, err := decide()
	if err != nil {
		return nil, fmt.Errorf("update container %s: %w", c.id, err)
	}
	if task, err := c.running(); err == nil {
		if err := task.Update(ctx, client.WithResources(limits)); err != nil {
			return nil, fmt.Errorf("update container %s: %w", c.id, foreign(err))
		}
	}
	update := func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		if s.Linux.Resources == nil {
			s.Linux.Resources = &specs.LinuxResources{}
		}
		now = s.Linux.Resources
		return overlay(now, limits)
	}
	if err := made.Update(ctx, withSpecOption(update)); err != nil {
		return nil, fmt.Errorf("update the spec of container %s: %w", c.id, foreign(err))
	}
	return now, r.changeContainer(c, func(rec *containerRecord) {
		config := proto.CloneOf(rec.Config.of)
		if config.GetLinux() == nil {
			config.Linux = &runtimeapi.LinuxContainerConfig{}
		}
		config.Linux.Resources = merge(merge(config.Linux.GetResources(), asked), reported(limits))
		rec.Config.of = config
	})
}

// merge returns the old limits with those of the new ones that are set.
func merge(old, update *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	out := &runtimeapi.LinuxContainerResources{}
	if old != nil {
		out = proto.CloneOf(old)
	}
	if update == nil {
		return out
	}
	if len(update.GetHugepageLimits()) > 0 {
		out.HugepageLimits = nil
	}
	proto.Merge(out, update)
	return out
}

// overlay sets those of a container's limits that are set in more. What else the spec has stays:
// limits that an NRI plugin has given the container, and its devices.
func overlay(limits, more *specs.LinuxResources) error {
	data, err := json.Marshal(more)
	if err != nil {
		return err
	}
	if len(more.HugepageLimits) > 0 {
		limits.HugepageLimits = nil
	}
	return json.Unmarshal(data, limits)
}

// withSpecOption changes the runtime spec of a container in containerd.
func withSpecOption(option oci.SpecOpts) client.UpdateContainerOpts {
	return func(ctx context.Context, containerd *client.Client, c *containers.Container) error {
		spec := &oci.Spec{}
		if err := oci.WithSpecFromBytes(c.Spec.GetValue())(ctx, containerd, c, spec); err != nil {
			return err
		}
		return client.WithSpec(spec, option)(ctx, containerd, c)
	}
}

// CheckpointContainer implements [cri.ContainerRuntime]: there are no checkpoints.
func (r *Runtime) CheckpointContainer(context.Context, string, string, time.Duration) error {
	return classify.As(errdefs.ErrNotImplemented, "the native runtime has no checkpoints of containers")
}
