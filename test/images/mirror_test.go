package images

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/opencontainers/go-digest"
)

func TestMirror(t *testing.T) {
	m, err := newMirror([]Image{testImage(File{Path: "/f", Mode: 0o644, Body: []byte("content")})})
	if err != nil {
		t.Fatal(err)
	}
	manifest := m.tags["test:v1"]
	get := func(method, path string) *http.Response {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		return w.Result()
	}
	for _, path := range []string{
		"/v2/test/manifests/v1", "/v2/test/manifests/" + manifest.String(), "/v2/test/blobs/" + m.digestOf(t, "tar"),
	} {
		head, body := get(http.MethodHead, path), get(http.MethodGet, path)
		d, err := digest.FromReader(body.Body)
		if err != nil || body.StatusCode != http.StatusOK || d.String() != body.Header.Get("Docker-Content-Digest") ||
			d.String() != head.Header.Get("Docker-Content-Digest") {
			t.Errorf("%s: %s %v, %v, %s", path, body.Status, body.Header, err, d)
		}
	}
	if r := get(http.MethodGet, "/v2/"); r.StatusCode != http.StatusOK {
		t.Errorf("/v2/: %s", r.Status)
	}
	for _, path := range []string{"/v2/test/manifests/v2", "/v2/other/manifests/v1", "/v2/test/blobs/v2", "/"} {
		if r := get(http.MethodGet, path); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
}

// digestOf returns the digest of the only blob whose media type ends with mediaType.
func (m *Mirror) digestOf(t *testing.T, mediaType string) string {
	t.Helper()
	for d, b := range m.blobs {
		if len(b.desc.MediaType) > len(mediaType) &&
			b.desc.MediaType[len(b.desc.MediaType)-len(mediaType):] == mediaType {
			return d.String()
		}
	}
	t.Fatalf("no blob of %s", mediaType)
	return ""
}
