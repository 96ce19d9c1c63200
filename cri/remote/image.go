package remote

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListImages returns the runtime's images.
func (r *Runtime) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	resp, err := call(ctx, r, "list_images", r.cfg.RequestTimeout, r.image.ListImages, &runtimeapi.ListImagesRequest{})
	return resp.GetImages(), err
}

// ImageStatus returns the image, or nil without an error if it does not exist.
func (r *Runtime) ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	resp, err := call(ctx, r, "image_status", r.cfg.RequestTimeout, r.image.ImageStatus,
		&runtimeapi.ImageStatusRequest{Image: spec})
	return resp.GetImage(), ignoreNotFound(err)
}

// PullImage pulls the image and returns a reference that names exactly what was pulled. It has no
// deadline of its own.
func (r *Runtime) PullImage(
	ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	resp, err := call(ctx, r, "pull_image", noDeadline, r.image.PullImage,
		&runtimeapi.PullImageRequest{Image: spec, Auth: auth, SandboxConfig: sandbox})
	if err == nil && resp.GetImageRef() == "" {
		err = fmt.Errorf("pull image %q: %w", spec.GetImage(), errNoAnswer)
	}
	return resp.GetImageRef(), err
}

// RemoveImage removes the image. It succeeds if the image does not exist.
func (r *Runtime) RemoveImage(ctx context.Context, spec *runtimeapi.ImageSpec) error {
	_, err := call(ctx, r, "remove_image", r.cfg.RequestTimeout, r.image.RemoveImage,
		&runtimeapi.RemoveImageRequest{Image: spec})
	return ignoreNotFound(err)
}

// ImageFsInfo returns where images are and how much they use.
func (r *Runtime) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return call(ctx, r, "image_fs_info", r.cfg.RequestTimeout, r.image.ImageFsInfo, &runtimeapi.ImageFsInfoRequest{})
}
