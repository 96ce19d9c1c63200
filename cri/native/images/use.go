package images

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Usable is an image that is ready for a container.
type Usable struct {
	client.Image
	// ID is the image's ID, and Snapshotter has its unpacked layers.
	ID, Snapshotter string
	// Settings are what the image says about its containers.
	Settings ocispec.ImageConfig
	// Digests are its names by digest in registries.
	Digests []string
	layers  []digest.Digest
}

// RootFS returns the digests of the uncompressed layers, which the service has read already.
func (u *Usable) RootFS(context.Context) ([]digest.Digest, error) { return u.layers, nil }

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
	img := client.NewImage(s.client, found.named)
	// An unpack of what is unpacked would still write to containerd's database, and wait for the disk.
	_, err = s.client.SnapshotService(at.snapshotter).Stat(ctx, identity.ChainID(found.layers).String())
	if errdefs.IsNotFound(err) {
		err = s.unpack(ctx, img, at.snapshotter)
	}
	if err != nil {
		return nil, fmt.Errorf("unpack image %s: %w", name, err)
	}
	return &Usable{
		Image: img, ID: found.id.String(), Snapshotter: at.snapshotter, Settings: found.settings,
		Digests: slices.Sorted(slices.Values(found.digests)), layers: found.layers,
	}, nil
}

func (s *Service) unpack(ctx context.Context, img client.Image, snapshotter string) error {
	ctx, release, err := s.Leased(ctx)
	if err != nil {
		return err
	}
	defer release()
	return img.Unpack(ctx, snapshotter)
}
