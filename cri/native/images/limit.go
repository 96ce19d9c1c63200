package images

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxMetadata bounds each index, manifest and config in bytes, because they are read into memory.
// Registries should take manifests of up to 4 MiB (OCI distribution specification, "Pushing
// Manifests"); a config is of that order.
const maxMetadata = 8 << 20

// checkSize returns errdefs.ErrInvalidArgument if a part of an image is too large to be read.
func checkSize(desc ocispec.Descriptor, size int64) error {
	if size <= maxMetadata {
		return nil
	}
	return fmt.Errorf("%s of type %q has %d bytes, at most %d are allowed: make the image smaller: %w",
		desc.Digest, desc.MediaType, size, maxMetadata, errdefs.ErrInvalidArgument)
}

// checkDownload checks the size of each part of an image that is not a layer, before its download.
func checkDownload(ctx context.Context, store content.InfoProvider, desc ocispec.Descriptor) error {
	if images.IsLayerType(desc.MediaType) {
		return nil
	}
	if err := checkSize(desc, desc.Size); err != nil {
		return err
	}
	// Content that is there is not downloaded again, also if the descriptor has a wrong size.
	present, err := store.Info(ctx, desc.Digest)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("look whether %s is there: %w", desc.Digest, err)
	}
	return checkSize(desc, present.Size)
}

// metadata opens indexes, manifests and configs, but none that is too large. The size is that of
// the content, because a descriptor may lie.
type metadata struct{ content.Provider }

// ReaderAt implements [content.Provider].
func (m metadata) ReaderAt(ctx context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	reader, err := m.Provider.ReaderAt(ctx, desc)
	if err != nil {
		return nil, err
	}
	if err := checkSize(desc, reader.Size()); err != nil {
		return nil, errors.Join(err, reader.Close())
	}
	return reader, nil
}
