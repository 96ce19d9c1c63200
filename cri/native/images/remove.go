package images

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemoveImage removes an image with all its names, and frees its space before it returns.
// Containers of the image keep the snapshots that they use. It succeeds if the image does not
// exist.
func (s *Service) RemoveImage(ctx context.Context, spec *runtimeapi.ImageSpec) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	img, err := s.find(ctx, spec.GetImage())
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	// Tags go first: after a crash, an image that has only its digest left is still there by ID.
	names := slices.Clone(img.names)
	slices.SortFunc(names, func(a, b string) int {
		return boolCompare(slices.Contains(img.digests, a), slices.Contains(img.digests, b))
	})
	for i, name := range names {
		var opts []images.DeleteOpt
		if i == len(names)-1 {
			opts = append(opts, images.SynchronousDelete())
		}
		if err := s.client.ImageService().Delete(ctx, name, opts...); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("remove image %s: %w", name, err)
		}
	}
	return nil
}

// boolCompare orders false before true.
func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Pin implements cri.ImagePinner: it exempts an image with this full name from garbage collection.
func (s *Service) Pin(ctx context.Context, name string) error {
	if err := s.setPinned(ctx, name, pinnedValue); err != nil {
		return fmt.Errorf("pin image %s: %w", name, err)
	}
	return nil
}

// Unpin implements cri.ImagePinner.
func (s *Service) Unpin(ctx context.Context, name string) error {
	if err := s.setPinned(ctx, name, ""); err != nil {
		return fmt.Errorf("unpin image %s: %w", name, err)
	}
	return nil
}

// setPinned sets the label that pins an image. Without a value there is no label.
func (s *Service) setPinned(ctx context.Context, name, value string) error {
	labelled := images.Image{Name: name, Labels: map[string]string{pinnedLabel: value}}
	_, err := s.client.ImageService().Update(ctx, labelled, "labels."+pinnedLabel)
	return err
}
