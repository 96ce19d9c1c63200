package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Usable is an image that is ready for a container.
type Usable struct {
	client.Image
	// ID is the image's ID, and Snapshotter has its unpacked layers.
	ID, Snapshotter string
	// Settings are what the image says about its containers.
	Settings ocispec.ImageConfig
}

// Use returns an image, by the names of [Service.ImageStatus], for a container. It unpacks the
// image if that was not done, as after an import. It returns errdefs.ErrNotFound if there is no
// such image.
func (s *Service) Use(ctx context.Context, name string) (*Usable, error) {
	found, err := s.find(ctx, name)
	if err != nil {
		return nil, err
	}
	at, err := s.snapshots(ctx)
	if err != nil {
		return nil, err
	}
	img, err := s.client.GetImage(ctx, found.names[0])
	if err != nil {
		return nil, fmt.Errorf("use image %s: %w", name, err)
	}
	if err := img.Unpack(ctx, at.snapshotter); err != nil {
		return nil, fmt.Errorf("unpack image %s: %w", name, err)
	}
	return &Usable{Image: img, ID: found.id.String(), Snapshotter: at.snapshotter, Settings: found.settings}, nil
}
