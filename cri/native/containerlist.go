package native

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
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
	if err := c.turn.take(ctx); err != nil {
		return err
	}
	defer c.turn.give()
	record := c.snapshot()
	if record.state() == runtimeapi.ContainerState_CONTAINER_EXITED {
		return classify.As(errdefs.ErrFailedPrecondition, fmt.Sprintf("container %s has ended", id))
	}
	made, err := r.client.LoadContainer(ctx, id)
	if err != nil {
		return fmt.Errorf("update container %s: %w", id, foreign(err))
	}
	merged := merge(record.Config.of.GetLinux().GetResources(), asked.GetLinux())
	if task, err := c.running(); err == nil {
		if err := task.Update(ctx, client.WithResources(resources(asked.GetLinux()))); err != nil {
			return fmt.Errorf("update container %s: %w", id, foreign(err))
		}
	}
	if err := made.Update(ctx, withSpecOption(withResources(merged))); err != nil {
		return fmt.Errorf("update the spec of container %s: %w", id, foreign(err))
	}
	return r.changeContainer(c, func(rec *containerRecord) {
		config := proto.CloneOf(rec.Config.of)
		if config.Linux == nil {
			config.Linux = &runtimeapi.LinuxContainerConfig{}
		}
		config.Linux.Resources = merged
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
