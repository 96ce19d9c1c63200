//go:build integration

package images

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berthd/berth/test/env"
)

// An image whose manifest or config does not fit into memory is refused before that is downloaded,
// and is not shown if it came otherwise.
func TestLargeMetadata(t *testing.T) {
	t.Parallel()
	s := newStore(t, env.Containerd(t, env.Options{}), "images-large")
	r := newRegistry(t, false)
	r.push(t, "app", "v1", 1)
	good := r.manifests["app:v1"]
	var manifest ocispec.Manifest
	if err := json.Unmarshal(good, &manifest); err != nil {
		t.Fatal(err)
	}
	padding := bytes.Repeat([]byte(" "), maxMetadata)
	large := r.blob(ocispec.MediaTypeImageConfig, slices.Concat(r.blobs[manifest.Config.Digest], padding))
	manifest.Config = large
	config := r.manifest("app", "config", encode(t, manifest))
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	index.Manifests = []ocispec.Descriptor{r.manifest("app", "manifest", slices.Concat(good, padding))}
	r.manifest("app", "index", encode(t, index))
	for _, tag := range []string{"config", "index"} {
		if id, err := s.pullAs(r.host+"/app:"+tag, nil); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: got %s, %v", tag, id, err)
		}
	}
	if r.asked("/blobs/"+large.Digest.String()) > 0 {
		t.Error("the large config was downloaded")
	}
	// The same content comes from elsewhere, and a descriptor says that it is small.
	for _, desc := range []ocispec.Descriptor{large, config} {
		data := slices.Concat(r.blobs[desc.Digest], r.manifests["app@"+desc.Digest.String()])
		if err := content.WriteBlob(t.Context(), s.client.ContentStore(), desc.Digest.String(), bytes.NewReader(data),
			desc, content.WithLabels(map[string]string{"containerd.io/gc.root": "test"})); err != nil {
			t.Fatal(err)
		}
	}
	foreign := images.Image{Name: "r.example/large:v1", Target: config}
	if _, err := s.client.ImageService().Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if list, err := s.ListImages(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("the list is %v, %v", list, err)
	}
	manifest.Config.Size = 100
	r.manifest("app", "liar", encode(t, manifest))
	if id, err := s.pullAs(r.host+"/app:liar", nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a config that is said to be small: got %s, %v", id, err)
	}
	s.mustPull(r.host + "/app:v1")
}
