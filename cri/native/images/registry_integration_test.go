//go:build integration

package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// registry is a registry that a test controls.
type registry struct {
	*httptest.Server
	host string // with the port

	mu sync.Mutex
	// manifests are by "repository:tag" and "repository@digest".
	manifests map[string][]byte
	blobs     map[digest.Digest][]byte
	requests  []*http.Request
	// hook, if set, sees each request first; true means that it has answered.
	hook func(http.ResponseWriter, *http.Request) bool
}

func newRegistry(t *testing.T, tls bool) *registry {
	t.Helper()
	r := &registry{manifests: map[string][]byte{}, blobs: map[digest.Digest][]byte{}}
	if tls {
		r.Server = httptest.NewTLSServer(r)
	} else {
		r.Server = httptest.NewServer(r)
	}
	t.Cleanup(r.Close)
	_, r.host, _ = strings.Cut(r.URL, "://")
	return r
}

// ServeHTTP serves what the distribution specification calls pull.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	hook := r.hook
	r.requests = append(r.requests, req)
	r.mu.Unlock()
	if hook != nil && hook(w, req) {
		return
	}
	path := strings.TrimPrefix(req.URL.Path, "/v2/")
	r.mu.Lock()
	var data []byte
	if repository, ref, ok := strings.Cut(path, "/manifests/"); ok {
		separator := ":"
		if strings.Contains(ref, ":") {
			separator = "@"
		}
		data = r.manifests[repository+separator+ref]
		w.Header().Set("Content-Type", mediaTypeOf(data))
	} else if _, ref, ok := strings.Cut(path, "/blobs/"); ok {
		data = r.blobs[digest.Digest(ref)]
	}
	r.mu.Unlock()
	if data == nil && path != "" {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Docker-Content-Digest", digest.FromBytes(data).String())
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
}

// mediaTypeOf returns the type that a manifest or an index says it has.
func mediaTypeOf(data []byte) string {
	var said struct{ MediaType string }
	_ = json.Unmarshal(data, &said)
	return said.MediaType
}

// push makes an image with so many layers of its own, and returns the image's ID.
func (r *registry) push(t *testing.T, repository, tag string, layers int) string {
	t.Helper()
	config := ocispec.Image{Platform: ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}}
	config.Config.User = "1000"
	config.RootFS.Type = "layers"
	manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range layers {
		plain, zipped := layer(t, fmt.Sprintf("%s-%d", tag, i))
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest.FromBytes(plain))
		manifest.Layers = append(manifest.Layers, r.blob(ocispec.MediaTypeImageLayerGzip, zipped))
	}
	manifest.Config = r.blob(ocispec.MediaTypeImageConfig, encode(t, config))
	r.manifest(repository, tag, encode(t, manifest))
	return manifest.Config.Digest.String()
}

// manifest adds a manifest or an index, and returns its descriptor.
func (r *registry) manifest(repository, tag string, data []byte) ocispec.Descriptor {
	d := digest.FromBytes(data)
	r.manifests[repository+":"+tag] = data
	r.manifests[repository+"@"+d.String()] = data
	return ocispec.Descriptor{MediaType: mediaTypeOf(data), Digest: d, Size: int64(len(data))}
}

func (r *registry) blob(mediaType string, data []byte) ocispec.Descriptor {
	d := digest.FromBytes(data)
	r.blobs[d] = data
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

// asked returns how many requests a path with this part had.
func (r *registry) asked(part string) (count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, req := range r.requests {
		if req.Method == http.MethodGet && strings.Contains(req.URL.Path, part) {
			count++
		}
	}
	return count
}

// set changes what happens before a request is answered.
func (r *registry) set(hook func(http.ResponseWriter, *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hook = hook
}

// trust writes the hosts.toml of a registry into the directory. ca, if set, is whose certificate
// the file ca.pem has.
func trust(t *testing.T, dir, host, text string, ca *registry) {
	t.Helper()
	at := filepath.Join(dir, host)
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if ca != nil {
		data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate().Raw})
		if err := os.WriteFile(filepath.Join(at, "ca.pem"), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(at, "hosts.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// layer returns a layer with one file of random bytes, plain and zipped.
func layer(t *testing.T, name string) (plain, zipped []byte) {
	t.Helper()
	content := make([]byte, 32<<10)
	_, _ = rand.Read(content)
	var raw, packed bytes.Buffer
	tw := tar.NewWriter(&raw)
	if err := tw.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	_, _ = tw.Write(content)
	_ = tw.Close()
	zw := gzip.NewWriter(&packed)
	_, _ = zw.Write(raw.Bytes())
	_ = zw.Close()
	return raw.Bytes(), packed.Bytes()
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
