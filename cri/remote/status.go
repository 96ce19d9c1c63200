package remote

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// kubeletAPIVersion is what a kubelet sends as its version in Version.
const kubeletAPIVersion = "0.1.0"

// Version returns the runtime's name and versions.
func (r *Runtime) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	return call(ctx, r, "version", r.cfg.RequestTimeout, r.runtime.Version,
		&runtimeapi.VersionRequest{Version: kubeletAPIVersion})
}

// Status returns the runtime's conditions, handlers and features.
func (r *Runtime) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	return call(ctx, r, "status", r.cfg.RequestTimeout, r.runtime.Status, &runtimeapi.StatusRequest{Verbose: verbose})
}

// RuntimeConfig returns the runtime's cgroup driver. It returns errdefs.IsNotImplemented if the
// runtime does not report one.
func (r *Runtime) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return call(ctx, r, "runtime_config", r.cfg.RequestTimeout, r.runtime.RuntimeConfig,
		&runtimeapi.RuntimeConfigRequest{})
}

// UpdateRuntimeConfig gives the runtime the range of the pods' addresses.
func (r *Runtime) UpdateRuntimeConfig(ctx context.Context, config *runtimeapi.RuntimeConfig) error {
	_, err := call(ctx, r, "update_runtime_config", r.cfg.RequestTimeout, r.runtime.UpdateRuntimeConfig,
		&runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: config})
	return err
}
