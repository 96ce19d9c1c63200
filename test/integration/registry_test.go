//go:build integration

package integration

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berthd/berth/test/env"
)

// testImage is an image as a registry has it: the manifest, and the config and layers by digest.
type testImage struct {
	manifest  []byte
	mediaType string
	blobs     map[digest.Digest][]byte
}

// readImage reads the image of an OCI archive.
func readImage(t *testing.T, archive string) testImage {
	t.Helper()
	img := testImage{blobs: map[digest.Digest][]byte{}}
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var root ocispec.Descriptor
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
		if sum, ok := strings.CutPrefix(h.Name, "blobs/sha256/"); ok {
			img.blobs[digest.NewDigestFromEncoded(digest.SHA256, sum)] = data
		}
		if h.Name == ocispec.ImageIndexFile {
			var index ocispec.Index
			if err := json.Unmarshal(data, &index); err != nil || len(index.Manifests) != 1 {
				t.Fatalf("index of %s: %v, %d manifests", archive, err, len(index.Manifests))
			}
			root = index.Manifests[0]
		}
	}
	img.manifest, img.mediaType = img.blobs[root.Digest], root.MediaType
	delete(img.blobs, root.Digest)
	return img
}

// with returns the image with more layers. Each layer has one file of so many random bytes, which
// do not compress.
func (img testImage) with(t *testing.T, sizes ...int) testImage {
	t.Helper()
	var manifest ocispec.Manifest
	var config ocispec.Image
	decode(t, img.manifest, &manifest)
	decode(t, img.blobs[manifest.Config.Digest], &config)
	out := testImage{mediaType: img.mediaType, blobs: map[digest.Digest][]byte{}}
	for _, layer := range manifest.Layers {
		out.blobs[layer.Digest] = img.blobs[layer.Digest]
	}
	for i, size := range sizes {
		data := make([]byte, size)
		_, _ = rand.Read(data)
		layer := layerOf(t, fmt.Sprintf("data-%d", i), data)
		d := digest.FromBytes(layer)
		out.blobs[d] = layer
		manifest.Layers = append(manifest.Layers, ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageLayer, Digest: d, Size: int64(len(layer)),
		})
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, d)
		config.History = append(config.History, ocispec.History{CreatedBy: "test"})
	}
	data := encode(t, config)
	manifest.Versioned = specs.Versioned{SchemaVersion: 2}
	manifest.Config = ocispec.Descriptor{
		MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromBytes(data), Size: int64(len(data)),
	}
	out.blobs[manifest.Config.Digest] = data
	out.manifest = encode(t, manifest)
	return out
}

// layerOf returns a layer of one file.
func layerOf(t *testing.T, name string, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{
		Name: name, Mode: 0o644, Size: int64(len(data)), Format: tar.FormatPAX,
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// size is the sum of the config and the layers.
func (img testImage) size() (sum int64) {
	for _, data := range img.blobs {
		sum += int64(len(data))
	}
	return sum
}

// layers returns the digests of the layers.
func (img testImage) layers(t *testing.T) (list []digest.Digest) {
	t.Helper()
	var manifest ocispec.Manifest
	decode(t, img.manifest, &manifest)
	for _, layer := range manifest.Layers {
		list = append(list, layer.Digest)
	}
	return list
}

// push uploads the image.
func (img testImage) push(t *testing.T, r *env.Registry, repository, tag string) {
	t.Helper()
	for _, data := range img.blobs {
		if err := r.PushBlob(t.Context(), repository, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.PushManifest(t.Context(), repository, tag, img.mediaType, img.manifest); err != nil {
		t.Fatal(err)
	}
}

func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("decode %.100q: %v", data, err)
	}
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// newRegistry serves the image of an archive on loopback, under any name and tag, until the test
// ends.
func newRegistry(t *testing.T, archive string) *httptestRegistry {
	t.Helper()
	img := readImage(t, archive)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		data, mediaType := img.manifest, img.mediaType
		d := digest.FromBytes(data)
		if !strings.Contains(req.URL.Path, "/manifests/") {
			d, mediaType = digest.Digest(req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]),
				"application/octet-stream"
			data = img.blobs[d]
		}
		if data == nil {
			http.NotFound(w, req)
			return
		}
		w.Header().Set("Content-Type", mediaType)
		w.Header().Set("Docker-Content-Digest", d.String())
		_, _ = w.Write(data)
	}))
	t.Cleanup(server.Close)
	return &httptestRegistry{Host: strings.TrimPrefix(server.URL, "http://")}
}

// httptestRegistry is a registry that belongs to one test.
type httptestRegistry struct {
	// Host is "127.0.0.1:port".
	Host string
}

// proxy is in front of a registry. It counts what is fetched, and can delay and block it.
type proxy struct {
	// Host is "127.0.0.1:port".
	Host string

	mu      sync.Mutex
	fetched map[digest.Digest]int // GETs of blobs
	rate    int                   // bytes per second of each blob; 0 for no limit
	// after how many bytes a blob stops, until the client gives up; once for each entry
	stall   map[digest.Digest]int
	stalled int  // how many clients gave up
	deny    bool // answer nothing at all
	now     int  // blobs being fetched
	most    int  // the highest number of blobs at a time
}

// newProxy starts a proxy in front of the registry, until the test ends.
func newProxy(t *testing.T, r *env.Registry) *proxy {
	t.Helper()
	target, err := url.Parse(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{fetched: map[digest.Digest]int{}, stall: map[digest.Digest]int{}}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport = r.Client().Transport
	forward.FlushInterval = -1
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, name, blob := strings.Cut(req.URL.Path, "/blobs/")
		if !blob || req.Method != http.MethodGet {
			p.mu.Lock()
			deny := p.deny
			p.mu.Unlock()
			if deny {
				select {
				case <-req.Context().Done():
				case <-ended:
				}
				return
			}
			forward.ServeHTTP(w, req)
			return
		}
		d := digest.Digest(name)
		p.mu.Lock()
		p.fetched[d]++
		p.now++
		p.most = max(p.most, p.now)
		after, stalls := p.stall[d]
		delete(p.stall, d)
		slow := &slowWriter{ResponseWriter: w, proxy: p, request: req, ended: ended, left: -1}
		p.mu.Unlock()
		if stalls {
			slow.left = after
		}
		defer p.set(func(p *proxy) { p.now-- })
		forward.ServeHTTP(slow, req)
	}))
	t.Cleanup(func() {
		close(ended)
		server.CloseClientConnections()
		server.Close()
	})
	p.Host = strings.TrimPrefix(server.URL, "http://")
	return p
}

// set changes what the proxy does.
func (p *proxy) set(change func(*proxy)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// slowWriter passes a blob on at the proxy's rate, and stops at the place of a stall.
type slowWriter struct {
	http.ResponseWriter
	proxy   *proxy
	request *http.Request
	ended   chan struct{}
	left    int // bytes before the stall; below 0 for no stall
}

// chunks is into how many parts a second is divided while a blob is passed on.
const chunks = 20

// Write passes on one buffer of the blob.
func (s *slowWriter) Write(data []byte) (n int, err error) {
	for n < len(data) {
		s.proxy.mu.Lock()
		rate := s.proxy.rate
		s.proxy.mu.Unlock()
		part := data[n:]
		if rate > 0 {
			part = part[:min(len(part), max(rate/chunks, 1))]
			if !s.wait(time.After(time.Second / chunks)) {
				return n, s.request.Context().Err()
			}
		}
		if s.left >= 0 {
			part = part[:min(len(part), s.left)]
			if len(part) == 0 {
				s.wait(nil)
				s.proxy.set(func(p *proxy) { p.stalled++ })
				return n, errors.New("given up")
			}
			s.left -= len(part)
		}
		written, err := s.ResponseWriter.Write(part)
		if err == nil {
			err = http.NewResponseController(s.ResponseWriter).Flush()
		}
		n += written
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// wait waits, and reports whether the client is still there.
func (s *slowWriter) wait(enough <-chan time.Time) bool {
	select {
	case <-enough:
		return true
	case <-s.request.Context().Done():
	case <-s.ended:
	}
	return false
}
