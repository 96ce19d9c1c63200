package images

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// blob is a content store that has one blob under every digest.
type blob struct {
	size   int64
	err    error
	closed bool
}

func (b *blob) Info(context.Context, digest.Digest) (content.Info, error) {
	return content.Info{Size: b.size}, b.err
}

func (b *blob) ReaderAt(context.Context, ocispec.Descriptor) (content.ReaderAt, error) {
	return b, b.err
}

func (b *blob) Size() int64 { return b.size }

func (b *blob) Close() error {
	b.closed = true
	return nil
}

func (b *blob) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(make([]byte, b.size)).ReadAt(p, off)
}

func TestCheckDownload(t *testing.T) {
	const config, layer = ocispec.MediaTypeImageConfig, ocispec.MediaTypeImageLayerGzip
	for name, c := range map[string]struct {
		mediaType     string
		size, present int64
		refused       bool
	}{
		"the largest config":                    {config, maxMetadata, 0, false},
		"a config":                              {config, maxMetadata + 1, 0, true},
		"a manifest":                            {ocispec.MediaTypeImageManifest, maxMetadata + 1, 0, true},
		"an index":                              {images.MediaTypeDockerSchema2ManifestList, maxMetadata + 1, 0, true},
		"an unknown type":                       {"text/x", maxMetadata + 1, 0, true},
		"a layer":                               {layer, 100 * maxMetadata, 0, false},
		"a config that is a large blob":         {config, 1, maxMetadata + 1, true},
		"a layer that is there":                 {layer, 100 * maxMetadata, 100 * maxMetadata, false},
		"a config that is there, of right size": {config, 7, 7, false},
	} {
		store := &blob{size: c.present}
		if c.present == 0 {
			store.err = errdefs.ErrNotFound
		}
		err := checkDownload(t.Context(), store, ocispec.Descriptor{MediaType: c.mediaType, Size: c.size})
		if errdefs.IsInvalidArgument(err) != c.refused || !c.refused && err != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
	store := &blob{err: errdefs.ErrUnavailable}
	desc := ocispec.Descriptor{MediaType: config, Size: 1}
	if err := checkDownload(t.Context(), store, desc); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Errorf("a store that does not answer: got %v", err)
	}
}

func TestMetadataIsSmall(t *testing.T) {
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Size: 1} // the descriptor lies
	for size, fits := range map[int64]bool{7: true, maxMetadata + 1: false} {
		store := &blob{size: size}
		data, err := content.ReadBlob(t.Context(), metadata{store}, desc)
		if fits && (err != nil || int64(len(data)) != size) || !fits && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%d bytes: got %d, %v", size, len(data), err)
		}
		if !store.closed {
			t.Errorf("%d bytes: the reader is still open", size)
		}
	}
}
