package remote

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox makes and starts a sandbox and returns its ID. Its deadline is twice the request
// timeout, as in the kubelet, because it includes the pull of the pause image and the set-up of the
// network.
func (r *Runtime) RunPodSandbox(
	ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string,
) (string, error) {
	resp, err := call(ctx, r, "run_podsandbox", 2*r.cfg.RequestTimeout, r.runtime.RunPodSandbox,
		&runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return "", err
	}
	if resp.GetPodSandboxId() == "" {
		return "", fmt.Errorf("run sandbox %q: %w", config.GetMetadata().GetName(), errNoAnswer)
	}
	return resp.GetPodSandboxId(), nil
}

// StopPodSandbox ends the sandbox's containers and frees its network. It succeeds if the sandbox
// does not exist or is stopped.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, r, "stop_podsandbox", r.cfg.RequestTimeout, r.runtime.StopPodSandbox,
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return ignoreNotFound(err)
}

// RemovePodSandbox removes the sandbox and its containers, by force if they run. It succeeds if the
// sandbox does not exist.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, r, "remove_podsandbox", r.cfg.RequestTimeout, r.runtime.RemovePodSandbox,
		&runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return ignoreNotFound(err)
}

// PodSandboxStatus returns the sandbox's state and addresses. It returns errdefs.IsNotFound if the
// sandbox does not exist.
func (r *Runtime) PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	resp, err := call(ctx, r, "podsandbox_status", r.cfg.RequestTimeout, r.runtime.PodSandboxStatus,
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return nil, err
	}
	if resp.GetStatus() == nil {
		return nil, fmt.Errorf("status of sandbox %q: %w", id, errNoAnswer)
	}
	return resp.GetStatus(), nil
}

// ListPodSandbox returns the sandboxes that match the filter; nil matches all.
func (r *Runtime) ListPodSandbox(
	ctx context.Context, filter *runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, error) {
	resp, err := call(ctx, r, "list_podsandbox", r.cfg.RequestTimeout, r.runtime.ListPodSandbox,
		&runtimeapi.ListPodSandboxRequest{Filter: filter})
	return resp.GetItems(), err
}
