package images

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/internal/store"
)

// Import implements cri.ImageImporter. Each image also gets its ID as a name, as the CRI plugin
// does: it is kept by that name when another archive takes its tag over.
func (s *Service) Import(ctx context.Context, path string) ([]string, error) {
	at, err := s.snapshots(ctx)
	if err != nil {
		return nil, fmt.Errorf("import images from %s: %w", path, err)
	}
	ctx, release, err := s.Leased(ctx)
	if err != nil {
		return nil, fmt.Errorf("import images from %s: %w", path, err)
	}
	defer release()
	imported, err := store.Import(ctx, s.client, path, store.As{
		Snapshotter: func(context.Context) string { return at.snapshotter },
		Labels:      map[string]string{pinnedLabel: pinnedValue},
	})
	if err != nil {
		return nil, fmt.Errorf("import images from %s: %w", path, err)
	}
	names := make([]string, 0, len(imported))
	for _, image := range imported {
		if err := s.nameByID(ctx, image); err != nil {
			return nil, fmt.Errorf("import images from %s: %w", path, err)
		}
		names = append(names, image.Name)
	}
	return names, nil
}

// nameByID gives an imported image its ID as a name. That name is not pinned: nobody needs the
// image when its tag is gone and no container has it.
func (s *Service) nameByID(ctx context.Context, imported images.Image) error {
	known, err := s.factsOf(ctx, imported)
	if errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err) {
		return nil // of another platform: no list has it
	}
	if err != nil {
		return fmt.Errorf("read image %s: %w", imported.Name, err)
	}
	named := images.Image{Name: known.id.String(), Target: imported.Target}
	_, err = s.client.ImageService().Create(ctx, named)
	if err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("name %s by its ID: %w", imported.Name, err)
	}
	return nil
}

// PullProgress implements cri.PullReporter.
func (s *Service) PullProgress(ctx context.Context, image string, since time.Time) (cri.PullProgress, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	at, err := s.snapshots(ctx)
	if err != nil {
		return cri.PullProgress{}, fmt.Errorf("look how far the pull of %s is: %w", image, err)
	}
	p, err := store.PullProgress(ctx, s.client, func(context.Context) string { return at.snapshotter }, image, since)
	if err != nil {
		return cri.PullProgress{}, fmt.Errorf("look how far the pull of %s is: %w", image, err)
	}
	return p, nil
}
