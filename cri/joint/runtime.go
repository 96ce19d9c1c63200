package joint

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version implements [cri.Runtime] by the first runtime.
func (r *Runtime) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	return toFirst(ctx, r, "version", func(m *Member) (*runtimeapi.VersionResponse, error) { return m.Version(ctx) })
}

// Status implements [cri.Runtime] by the first runtime.
func (r *Runtime) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	return toFirst(ctx, r, "status",
		func(m *Member) (*runtimeapi.StatusResponse, error) { return m.Status(ctx, verbose) })
}

// RuntimeConfig implements [cri.Runtime] by the first runtime.
func (r *Runtime) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return toFirst(ctx, r, "runtime_config",
		func(m *Member) (*runtimeapi.RuntimeConfigResponse, error) { return m.RuntimeConfig(ctx) })
}

// UpdateRuntimeConfig implements [cri.Runtime] by the first runtime: no new sandbox of the former
// needs an address.
func (r *Runtime) UpdateRuntimeConfig(ctx context.Context, config *runtimeapi.RuntimeConfig) error {
	_, err := toFirst(ctx, r, "update_runtime_config",
		none(func(m *Member) error { return m.UpdateRuntimeConfig(ctx, config) }))
	return err
}

// RunPodSandbox implements [cri.SandboxRuntime] by the first runtime.
func (r *Runtime) RunPodSandbox(
	ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string,
) (string, error) {
	p, err := r.pair(ctx)
	if err != nil {
		return "", err
	}
	p.moved(config.GetMetadata().GetUid())
	return observed(p.first, "run_podsandbox",
		func(m *Member) (string, error) { return m.RunPodSandbox(ctx, config, handler) })
}

// StopPodSandbox implements [cri.SandboxRuntime].
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	_, err := toOwner(ctx, r, "stop_podsandbox", withID(id),
		none(func(m *Member) error { return m.StopPodSandbox(ctx, id) }))
	return err
}

// RemovePodSandbox implements [cri.SandboxRuntime].
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	_, err := toOwner(ctx, r, "remove_podsandbox", withID(id),
		none(func(m *Member) error { return m.RemovePodSandbox(ctx, id) }))
	return err
}

// PodSandboxStatus implements [cri.SandboxRuntime].
func (r *Runtime) PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	return toOwner(ctx, r, "podsandbox_status", withID(id),
		func(m *Member) (*runtimeapi.PodSandboxStatus, error) { return m.PodSandboxStatus(ctx, id) })
}

// ListPodSandbox implements [cri.SandboxRuntime]. If it finds the former runtime empty, it is the
// last that calls it.
func (r *Runtime) ListPodSandbox(
	ctx context.Context, filter *runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, error) {
	var left *pair
	out, err := joined(ctx, r, "list_podsandbox",
		func(m *Member) ([]*runtimeapi.PodSandbox, error) { return m.ListPodSandbox(ctx, filter) },
		func(p *pair, found []*runtimeapi.PodSandbox) {
			p.seen(found)
			if len(found) == 0 {
				left = p
			}
		})
	if left != nil {
		r.leave(ctx, left)
	}
	return out, err
}

// CreateContainer implements [cri.ContainerRuntime] by the runtime that has the sandbox.
func (r *Runtime) CreateContainer(
	ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	p, err := r.pair(ctx)
	if err != nil {
		return "", err
	}
	id, err := toOwner(ctx, r, "create_container", withID(sandboxID),
		func(m *Member) (string, error) { return m.CreateContainer(ctx, sandboxID, config, sandbox) })
	if err == nil && p.has(sandboxID) {
		p.made(id)
	}
	return id, err
}

// StartContainer implements [cri.ContainerRuntime].
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	_, err := toOwner(ctx, r, "start_container", withID(id),
		none(func(m *Member) error { return m.StartContainer(ctx, id) }))
	return err
}

// StopContainer implements [cri.ContainerRuntime].
func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	_, err := toOwner(ctx, r, "stop_container", withID(id),
		none(func(m *Member) error { return m.StopContainer(ctx, id, grace) }))
	return err
}

// RemoveContainer implements [cri.ContainerRuntime].
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	_, err := toOwner(ctx, r, "remove_container", withID(id),
		none(func(m *Member) error { return m.RemoveContainer(ctx, id) }))
	return err
}

// ContainerStatus implements [cri.ContainerRuntime].
func (r *Runtime) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	return toOwner(ctx, r, "container_status", withID(id),
		func(m *Member) (*runtimeapi.ContainerStatus, error) { return m.ContainerStatus(ctx, id) })
}

// ListContainers implements [cri.ContainerRuntime].
func (r *Runtime) ListContainers(
	ctx context.Context, filter *runtimeapi.ContainerFilter,
) ([]*runtimeapi.Container, error) {
	return joined(ctx, r, "list_containers",
		func(m *Member) ([]*runtimeapi.Container, error) { return m.ListContainers(ctx, filter) },
		(*pair).seenContainers)
}

// UpdateContainerResources implements [cri.ContainerRuntime].
func (r *Runtime) UpdateContainerResources(
	ctx context.Context, id string, resources *runtimeapi.ContainerResources,
) error {
	_, err := toOwner(ctx, r, "update_container", withID(id),
		none(func(m *Member) error { return m.UpdateContainerResources(ctx, id, resources) }))
	return err
}

// ReopenContainerLog implements [cri.ContainerRuntime].
func (r *Runtime) ReopenContainerLog(ctx context.Context, id string) error {
	_, err := toOwner(ctx, r, "reopen_container_log", withID(id),
		none(func(m *Member) error { return m.ReopenContainerLog(ctx, id) }))
	return err
}

// CheckpointContainer implements [cri.ContainerRuntime].
func (r *Runtime) CheckpointContainer(ctx context.Context, id, location string, timeout time.Duration) error {
	_, err := toOwner(ctx, r, "checkpoint_container", withID(id),
		none(func(m *Member) error { return m.CheckpointContainer(ctx, id, location, timeout) }))
	return err
}

// ContainerStats implements [cri.ContainerRuntime].
func (r *Runtime) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	return toOwner(ctx, r, "container_stats", withID(id),
		func(m *Member) (*runtimeapi.ContainerStats, error) { return m.ContainerStats(ctx, id) })
}

// ListContainerStats implements [cri.ContainerRuntime].
func (r *Runtime) ListContainerStats(
	ctx context.Context, filter *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, error) {
	return joined(ctx, r, "list_container_stats",
		func(m *Member) ([]*runtimeapi.ContainerStats, error) { return m.ListContainerStats(ctx, filter) },
		func(*pair, []*runtimeapi.ContainerStats) {})
}

// ExecSync implements [cri.StreamRuntime].
func (r *Runtime) ExecSync(
	ctx context.Context, id string, cmd []string, timeout time.Duration,
) (*runtimeapi.ExecSyncResponse, error) {
	return toOwner(ctx, r, "exec_sync", withID(id),
		func(m *Member) (*runtimeapi.ExecSyncResponse, error) { return m.ExecSync(ctx, id, cmd, timeout) })
}

// Exec implements [cri.StreamRuntime].
func (r *Runtime) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (string, error) {
	return toOwner(ctx, r, "exec", withID(req.GetContainerId()),
		func(m *Member) (string, error) { return m.Exec(ctx, req) })
}

// Attach implements [cri.StreamRuntime].
func (r *Runtime) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (string, error) {
	return toOwner(ctx, r, "attach", withID(req.GetContainerId()),
		func(m *Member) (string, error) { return m.Attach(ctx, req) })
}

// PortForward implements [cri.StreamRuntime].
func (r *Runtime) PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (string, error) {
	return toOwner(ctx, r, "port_forward", withID(req.GetPodSandboxId()),
		func(m *Member) (string, error) { return m.PortForward(ctx, req) })
}
