//go:build integration

package integration

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// registry serves one image, read from an OCI archive, on loopback, under any name and tag.
type registry struct {
	// Host is "127.0.0.1:port".
	Host string

	index ocispec.Descriptor
	blobs map[string][]byte // by digest
}

// newRegistry serves the archive until the test ends.
func newRegistry(t *testing.T, archive string) *registry {
	t.Helper()
	r := &registry{blobs: map[string][]byte{}}
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for tr := tar.NewReader(f); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("read %s: %v", archive, err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatalf("read %s: %v", archive, err)
		}
		if digest, ok := strings.CutPrefix(h.Name, "blobs/sha256/"); ok {
			r.blobs["sha256:"+digest] = data
		}
		if h.Name == ocispec.ImageIndexFile {
			var index ocispec.Index
			if err := json.Unmarshal(data, &index); err != nil || len(index.Manifests) != 1 {
				t.Fatalf("index of %s: %v, %d manifests", archive, err, len(index.Manifests))
			}
			r.index = index.Manifests[0]
		}
	}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.Host = strings.TrimPrefix(server.URL, "http://")
	return r
}

// ServeHTTP answers the two requests of a pull: a manifest by tag or digest, and a blob.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	parts := strings.Split(req.URL.Path, "/")
	digest := parts[len(parts)-1]
	contentType := "application/octet-stream"
	if strings.Contains(req.URL.Path, "/manifests/") {
		digest, contentType = r.index.Digest.String(), r.index.MediaType
	}
	data, ok := r.blobs[digest]
	if !ok {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Docker-Content-Digest", digest)
	_, _ = w.Write(data)
}
