package remote

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer makes a container in the sandbox and returns its ID. It returns
// errdefs.IsAlreadyExists if the name is taken.
func (r *Runtime) CreateContainer(
	ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	resp, err := call(ctx, r, "create_container", r.cfg.RequestTimeout, r.runtime.CreateContainer,
		&runtimeapi.CreateContainerRequest{PodSandboxId: sandboxID, Config: config, SandboxConfig: sandbox})
	if err != nil {
		return "", err
	}
	if resp.GetContainerId() == "" {
		return "", fmt.Errorf("create container %q in sandbox %q: %w", config.GetMetadata().GetName(), sandboxID,
			errNoAnswer)
	}
	return resp.GetContainerId(), nil
}

// StartContainer starts a created container.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	_, err := call(ctx, r, "start_container", r.cfg.RequestTimeout, r.runtime.StartContainer,
		&runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

// StopContainer sends the stop signal, then SIGKILL after grace, and returns when the container has
// ended. Its deadline is grace and the request timeout together. It succeeds if the container does
// not exist or has ended.
func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	_, err := call(ctx, r, "stop_container", max(grace, 0)+r.cfg.RequestTimeout, r.runtime.StopContainer,
		&runtimeapi.StopContainerRequest{ContainerId: id, Timeout: seconds(grace)})
	return ignoreNotFound(err)
}

// RemoveContainer removes the container, by force if it runs. It succeeds if the container does not
// exist.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	_, err := call(ctx, r, "remove_container", r.cfg.RequestTimeout, r.runtime.RemoveContainer,
		&runtimeapi.RemoveContainerRequest{ContainerId: id})
	return ignoreNotFound(err)
}

// ContainerStatus returns the container's state, times and exit code. It returns errdefs.IsNotFound
// if the container does not exist.
func (r *Runtime) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	resp, err := call(ctx, r, "container_status", r.cfg.RequestTimeout, r.runtime.ContainerStatus,
		&runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return nil, err
	}
	if resp.GetStatus() == nil {
		return nil, fmt.Errorf("status of container %q: %w", id, errNoAnswer)
	}
	return resp.GetStatus(), nil
}

// ListContainers returns the containers that match the filter; nil matches all.
func (r *Runtime) ListContainers(
	ctx context.Context, filter *runtimeapi.ContainerFilter,
) ([]*runtimeapi.Container, error) {
	resp, err := call(ctx, r, "list_containers", r.cfg.RequestTimeout, r.runtime.ListContainers,
		&runtimeapi.ListContainersRequest{Filter: filter})
	return resp.GetContainers(), err
}

// UpdateContainerResources changes a container's limits in place.
func (r *Runtime) UpdateContainerResources(
	ctx context.Context, id string, resources *runtimeapi.ContainerResources,
) error {
	_, err := call(ctx, r, "update_container", r.cfg.RequestTimeout, r.runtime.UpdateContainerResources,
		&runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: id,
			Linux:       resources.GetLinux(),
			Windows:     resources.GetWindows(),
		})
	return err
}

// CheckpointContainer writes the container's state into an archive at that path.
func (r *Runtime) CheckpointContainer(ctx context.Context, id, location string, timeout time.Duration) error {
	_, err := call(ctx, r, "checkpoint_container", max(timeout, 0)+r.cfg.RequestTimeout, r.runtime.CheckpointContainer,
		&runtimeapi.CheckpointContainerRequest{ContainerId: id, Location: location, Timeout: seconds(timeout)})
	return err
}

// ReopenContainerLog makes the runtime open the container's log file again, after the file was
// rotated.
func (r *Runtime) ReopenContainerLog(ctx context.Context, id string) error {
	_, err := call(ctx, r, "reopen_container_log", r.cfg.RequestTimeout, r.runtime.ReopenContainerLog,
		&runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	return err
}

// ContainerStats returns one container's usage. It wakes the container's shim.
func (r *Runtime) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	resp, err := call(ctx, r, "container_stats", r.cfg.RequestTimeout, r.runtime.ContainerStats,
		&runtimeapi.ContainerStatsRequest{ContainerId: id})
	if err != nil {
		return nil, err
	}
	if resp.GetStats() == nil {
		return nil, fmt.Errorf("stats of container %q: %w", id, errNoAnswer)
	}
	return resp.GetStats(), nil
}

// ListContainerStats returns the usage of the containers that match the filter. It wakes all their
// shims.
func (r *Runtime) ListContainerStats(
	ctx context.Context, filter *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, error) {
	resp, err := call(ctx, r, "list_container_stats", r.cfg.RequestTimeout, r.runtime.ListContainerStats,
		&runtimeapi.ListContainerStatsRequest{Filter: filter})
	return resp.GetStats(), err
}
