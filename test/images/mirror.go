package images

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/opencontainers/go-digest"
)

// Mirror serves images to clients that pull them, as the images' registry does: the manifests and
// blobs of the distribution protocol, by tag and by digest.
type Mirror struct {
	// tags are the manifests' digests by "REPOSITORY:TAG", without the registry's name. blobs has
	// all content.
	tags  map[string]digest.Digest
	blobs map[digest.Digest]blob
}

// newMirror makes the images. If two have the same name, it serves the last.
func newMirror(list []Image) (*Mirror, error) {
	m := &Mirror{tags: map[string]digest.Digest{}, blobs: map[digest.Digest]blob{}}
	for _, image := range list {
		layer, err := layerOf(image.Files)
		if err != nil {
			return nil, fmt.Errorf("make the layer of %s: %w", image.Name, err)
		}
		blobs, err := blobsOf(image, layer)
		if err != nil {
			return nil, fmt.Errorf("describe image %s: %w", image.Name, err)
		}
		for _, b := range blobs {
			m.blobs[b.desc.Digest] = b
		}
		_, name, _ := strings.Cut(image.Name, "/")
		m.tags[name] = blobs[len(blobs)-1].desc.Digest
	}
	return m, nil
}

// ServeHTTP answers /v2/, /v2/REPOSITORY/manifests/TAG-OR-DIGEST and /v2/REPOSITORY/blobs/DIGEST.
func (m *Mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/v2/")
	if path == "" && ok {
		return
	}
	repository, wanted, ok := strings.Cut(path, "/manifests/")
	if !ok {
		_, wanted, _ = strings.Cut(path, "/blobs/")
	}
	d, ok := m.tags[repository+":"+wanted]
	if !ok {
		d = digest.Digest(wanted)
	}
	b, ok := m.blobs[d]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", b.desc.MediaType)
	w.Header().Set("Content-Length", fmt.Sprint(b.desc.Size))
	w.Header().Set("Docker-Content-Digest", d.String())
	if r.Method != http.MethodHead {
		_, _ = w.Write(b.data)
	}
}
