package joint

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

var (
	_ cri.ImageImporter   = (*Runtime)(nil)
	_ cri.ImagePinner     = (*Runtime)(nil)
	_ cri.PullReporter    = (*Runtime)(nil)
	_ cri.Repairer        = (*Runtime)(nil)
	_ cri.ForgottenFinder = (*Runtime)(nil)
)

// ListImages implements [cri.ImageRuntime] by the first runtime. The images of the former are used
// by its own pods alone.
func (r *Runtime) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	return toFirst(ctx, r, "list_images", func(m *Member) ([]*runtimeapi.Image, error) { return m.ListImages(ctx) })
}

// ImageStatus implements [cri.ImageRuntime] by the runtime that has the sandbox of the pod that the
// spec's annotation [cri.LabelPodUID] names, else by the first.
func (r *Runtime) ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	return toOwner(ctx, r, "image_status", ofPod(spec.GetAnnotations()[cri.LabelPodUID]),
		func(m *Member) (*runtimeapi.Image, error) { return m.ImageStatus(ctx, spec) })
}

// PullImage implements [cri.ImageRuntime] by the runtime that has the pod's sandbox, else by the
// first.
func (r *Runtime) PullImage(
	ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	return toOwner(ctx, r, "pull_image", ofPod(sandbox.GetMetadata().GetUid()),
		func(m *Member) (string, error) { return m.PullImage(ctx, spec, auth, sandbox) })
}

// RemoveImage implements [cri.ImageRuntime] by the first runtime.
func (r *Runtime) RemoveImage(ctx context.Context, spec *runtimeapi.ImageSpec) error {
	_, err := toFirst(ctx, r, "remove_image", none(func(m *Member) error { return m.RemoveImage(ctx, spec) }))
	return err
}

// ImageFsInfo implements [cri.ImageRuntime] by the first runtime.
func (r *Runtime) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return toFirst(ctx, r, "image_fs_info",
		func(m *Member) (*runtimeapi.ImageFsInfoResponse, error) { return m.ImageFsInfo(ctx) })
}

// Capabilities returns what the runtimes do beyond the CRI, once they are chosen. What they cannot
// do is an error of class errdefs.ErrNotImplemented, or nothing to be done.
func (r *Runtime) Capabilities() cri.Capabilities {
	return cri.Capabilities{Importer: r, Pinner: r, Pulls: r, Repairer: r, Forgotten: r}
}

// unable is the error for what a runtime cannot do.
func unable(m *Member, what string) error {
	return fmt.Errorf("%s: %s cannot: %w", what, m.Name, errdefs.ErrNotImplemented)
}

// Import implements [cri.ImageImporter] by the first runtime.
func (r *Runtime) Import(ctx context.Context, path string) ([]string, error) {
	p, err := r.pair(ctx)
	if err != nil {
		return nil, err
	}
	if p.first.Capabilities.Importer == nil {
		return nil, unable(p.first, "import images from "+path)
	}
	return p.first.Capabilities.Importer.Import(ctx, path)
}

// Pin implements [cri.ImagePinner] by the first runtime.
func (r *Runtime) Pin(ctx context.Context, name string) error {
	p, err := r.pair(ctx)
	if err != nil {
		return err
	}
	if p.first.Capabilities.Pinner == nil {
		return unable(p.first, "pin image "+name)
	}
	return p.first.Capabilities.Pinner.Pin(ctx, name)
}

// Unpin implements [cri.ImagePinner] by the first runtime.
func (r *Runtime) Unpin(ctx context.Context, name string) error {
	p, err := r.pair(ctx)
	if err != nil {
		return err
	}
	if p.first.Capabilities.Pinner == nil {
		return unable(p.first, "unpin image "+name)
	}
	return p.first.Capabilities.Pinner.Unpin(ctx, name)
}

// PullProgress implements [cri.PullReporter] by the first runtime.
func (r *Runtime) PullProgress(ctx context.Context, image string, since time.Time) (cri.PullProgress, error) {
	p, err := r.pair(ctx)
	if err != nil {
		return cri.PullProgress{}, err
	}
	if p.first.Capabilities.Pulls == nil {
		return cri.PullProgress{}, unable(p.first, "look how far the pull of "+image+" is")
	}
	return p.first.Capabilities.Pulls.PullProgress(ctx, image, since)
}

// EndForgottenShims implements [cri.Repairer] by both runtimes.
func (r *Runtime) EndForgottenShims(ctx context.Context) (int, error) {
	return r.repair(ctx, func(m *Member) (int, error) {
		if m.Capabilities.Repairer == nil {
			return 0, nil
		}
		return m.Capabilities.Repairer.EndForgottenShims(ctx)
	})
}

// RemoveForgottenPaths implements [cri.Repairer] by both runtimes.
func (r *Runtime) RemoveForgottenPaths(ctx context.Context) (int, error) {
	return r.repair(ctx, func(m *Member) (int, error) {
		if m.Capabilities.Repairer == nil {
			return 0, nil
		}
		return m.Capabilities.Repairer.RemoveForgottenPaths(ctx)
	})
}

// repair repairs both runtimes, and returns how much was removed.
func (r *Runtime) repair(ctx context.Context, each func(*Member) (int, error)) (int, error) {
	removed, err := forgotten(ctx, r, func(m *Member) ([]int, error) {
		n, err := each(m)
		return []int{n}, err
	})
	sum := 0
	for _, n := range removed {
		sum += n
	}
	return sum, err
}

// ForgottenShims implements [cri.ForgottenFinder] by both runtimes.
func (r *Runtime) ForgottenShims(ctx context.Context) ([]int, error) {
	return forgotten(ctx, r, func(m *Member) ([]int, error) {
		if m.Capabilities.Forgotten == nil {
			return nil, nil
		}
		return m.Capabilities.Forgotten.ForgottenShims(ctx)
	})
}

// ForgottenPaths implements [cri.ForgottenFinder] by both runtimes.
func (r *Runtime) ForgottenPaths(ctx context.Context) ([]string, error) {
	return forgotten(ctx, r, func(m *Member) ([]string, error) {
		if m.Capabilities.Forgotten == nil {
			return nil, nil
		}
		return m.Capabilities.Forgotten.ForgottenPaths(ctx)
	})
}
