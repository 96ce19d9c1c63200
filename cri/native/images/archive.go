package images

import (
	"context"
	"fmt"
	"time"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/internal/store"
)

// Import implements cri.ImageImporter.
func (s *Service) Import(ctx context.Context, path string) ([]string, error) {
	at, err := s.snapshots(ctx)
	if err != nil {
		return nil, fmt.Errorf("import images from %s: %w", path, err)
	}
	imported, err := store.Import(ctx, s.client, path, store.As{
		Snapshotter: func(context.Context) string { return at.snapshotter },
		Labels:      map[string]string{pinnedLabel: pinnedValue},
	})
	if err != nil {
		return nil, fmt.Errorf("import images from %s: %w", path, err)
	}
	names := make([]string, 0, len(imported))
	for _, image := range imported {
		names = append(names, image.Name)
	}
	return names, nil
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
