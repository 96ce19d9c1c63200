//go:build integration

package integration

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// badRegistry is a registry that gives wrong answers, another kind for each repository. It gives
// right answers for the blobs and manifests that a test has made.
type badRegistry struct {
	// by repository: the answers to requests for what is not in content
	answers map[string]http.HandlerFunc
	content map[string][]byte // by repository and digest, or tag
	types   map[string]string // of content
}

// ServeHTTP answers the requests of a pull.
func (r *badRegistry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimPrefix(req.URL.Path, "/v2/")
	repository, rest, _ := strings.Cut(path, "/")
	_, ref, _ := strings.Cut(rest, "/")
	key := repository + " " + ref
	data, ok := r.content[key]
	if !ok {
		if answer := r.answers[repository]; answer != nil {
			answer(w, req)
			return
		}
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", r.types[key])
	w.Header().Set("Docker-Content-Digest", digest.FromBytes(data).String())
	_, _ = w.Write(data)
}

// serve makes the repository return the image under tag v1, after the function has changed it.
func (r *badRegistry) serve(
	t *testing.T, repository string, img testImage, change func(*ocispec.Manifest, map[digest.Digest][]byte),
) {
	t.Helper()
	var manifest ocispec.Manifest
	decode(t, img.manifest, &manifest)
	blobs := maps.Clone(img.blobs)
	change(&manifest, blobs)
	data := encode(t, manifest)
	for d, blob := range blobs {
		r.content[repository+" "+d.String()], r.types[repository+" "+d.String()] = blob, "application/octet-stream"
	}
	for _, ref := range []string{"v1", digest.FromBytes(data).String()} {
		r.content[repository+" "+ref], r.types[repository+" "+ref] = data, img.mediaType
	}
}

// raw makes the repository return data as its manifest.
func (r *badRegistry) raw(repository, mediaType string, data []byte) {
	for _, ref := range []string{"v1", digest.FromBytes(data).String()} {
		r.content[repository+" "+ref], r.types[repository+" "+ref] = data, mediaType
	}
}

// newBadRegistry returns the registry. For each of its repositories, says has the text that the
// error of a pull must contain ("" for any text).
func newBadRegistry(t *testing.T, img testImage) (r *badRegistry, says map[string]string) {
	r = &badRegistry{answers: map[string]http.HandlerFunc{}, content: map[string][]byte{}, types: map[string]string{}}
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	endless := func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", img.mediaType)
		for chunk := bytes.Repeat([]byte(" "), 64<<10); req.Context().Err() == nil; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
	says = map[string]string{
		"missing": "not found", "forbidden": "403", "no-challenge": "401", "broken": "500", "busy": "429", "page": "",
		"ansi": "", "garbage": "", "empty": "", "endless": "",
		"loop": "", "elsewhere": "", "hangs-up": "", "too-long": "", "other-digest": "", "short": "",
		"blob-missing": "not found", "no-archive": "", "bomb-header": "",
		"no-platform": "no match for platform", "index-of-itself": "", "schema1": "", "config-garbage": "",
		"no-layers-match": "", "negative-size": "",
	}
	r.answers["forbidden"] = status(http.StatusForbidden, "{}")
	r.answers["no-challenge"] = status(http.StatusUnauthorized, "")
	r.answers["broken"] = status(http.StatusInternalServerError, strings.Repeat("<p>", 100_000))
	r.answers["busy"] = status(http.StatusTooManyRequests, "")
	r.answers["page"] = status(http.StatusOK, "<html>"+strings.Repeat("welcome ", 100_000))
	r.answers["ansi"] = status(http.StatusBadRequest,
		`{"errors":[{"code":"\u001b[2J\u001b]0;x\u0007","message":"\u001b[31mred\u202e\n\n"}]}`)
	r.answers["endless"] = endless
	r.answers["loop"] = func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, req.URL.Path, http.StatusTemporaryRedirect)
	}
	r.answers["elsewhere"] = func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, "file:///etc/passwd", http.StatusTemporaryRedirect)
	}
	r.answers["hangs-up"] = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	r.raw("garbage", img.mediaType, []byte(`{"schemaVersion": 2, "layers": [`))
	r.raw("empty", img.mediaType, nil)
	r.raw("too-long", img.mediaType,
		append([]byte(`{"schemaVersion": 2, "x": "`), bytes.Repeat([]byte("x"), 16<<20)...))
	r.raw("schema1", "application/vnd.docker.distribution.manifest.v1+prettyjws",
		[]byte(`{"schemaVersion": 1, "name": "schema1", "fsLayers": []}`))
	last := len(img.layers(t)) - 1 // the other layers are already unpacked on the node
	wrongLayer := func(data []byte, mediaType string) func(*ocispec.Manifest, map[digest.Digest][]byte) {
		return func(m *ocispec.Manifest, blobs map[digest.Digest][]byte) {
			d := digest.FromBytes(data)
			m.Layers[last] = ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
			blobs[d] = data
		}
	}
	r.serve(t, "no-archive", img, wrongLayer(bytes.Repeat([]byte("no tar "), 1000), ocispec.MediaTypeImageLayer))
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(bytes.Repeat([]byte{0xff}, 32<<20))
	_ = z.Close()
	r.serve(t, "bomb-header", img, wrongLayer(zipped.Bytes(), ocispec.MediaTypeImageLayerGzip))
	r.serve(t, "other-digest", img, func(m *ocispec.Manifest, blobs map[digest.Digest][]byte) {
		data := slices.Clone(blobs[m.Layers[last].Digest])
		d := digest.FromString("something else")
		m.Layers[last] = ocispec.Descriptor{MediaType: m.Layers[last].MediaType, Digest: d, Size: int64(len(data))}
		blobs[d] = data
	})
	r.serve(t, "blob-missing", img, func(m *ocispec.Manifest, _ map[digest.Digest][]byte) {
		m.Layers[last] = ocispec.Descriptor{
			MediaType: m.Layers[last].MediaType, Digest: digest.FromString("nowhere"), Size: 10,
		}
	})
	r.serve(t, "negative-size", img, func(m *ocispec.Manifest, blobs map[digest.Digest][]byte) {
		wrongLayer([]byte("x"), m.Layers[last].MediaType)(m, blobs)
		m.Layers[last].Size = -1
	})
	r.serve(t, "config-garbage", img, func(m *ocispec.Manifest, blobs map[digest.Digest][]byte) {
		data := []byte(`{"rootfs": 5}`)
		m.Config = ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromBytes(data), Size: int64(len(data)),
		}
		blobs[m.Config.Digest] = data
	})
	r.serve(t, "no-layers-match", img, func(m *ocispec.Manifest, blobs map[digest.Digest][]byte) {
		m.Layers = append(m.Layers, m.Layers...) // more layers than the config has
	})
	short := digest.FromString("short")
	r.serve(t, "short", img, func(m *ocispec.Manifest, _ map[digest.Digest][]byte) {
		m.Layers[last] = ocispec.Descriptor{MediaType: m.Layers[last].MediaType, Digest: short, Size: 1 << 20}
	})
	r.answers["short"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(1<<20))
		_, _ = w.Write([]byte("only this"))
		panic(http.ErrAbortHandler)
	}
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{{
		MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromBytes(img.manifest),
		Size:     int64(len(img.manifest)),
		Platform: &ocispec.Platform{OS: "plan9", Architecture: "mips"},
	}}}
	index.SchemaVersion = 2
	r.raw("no-platform", ocispec.MediaTypeImageIndex, encode(t, index))
	index.Manifests[0] = ocispec.Descriptor{
		MediaType: ocispec.MediaTypeImageIndex, Digest: digest.FromString("myself"), Size: 100,
	}
	r.raw("index-of-itself", ocispec.MediaTypeImageIndex, encode(t, index))
	return r, says
}

// TestBadRegistries runs pods with images from registries that give wrong answers, and with images
// whose names are wrong. Each pod reports what is wrong, no pull goes on forever, and a pod without
// faults is not affected.
func TestBadRegistries(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			e := env.Containerd(t, env.Options{Version: version})
			bad, says := newBadRegistry(t, readImage(t, archiveOf(t, e, images.Web)).with(t, 100))
			server := httptest.NewServer(bad)
			defer server.Close()
			host := strings.TrimPrefix(server.URL, "http://")
			a := e.StartAgent(t, env.AgentOptions{
				Kubelet: "maxParallelImagePulls: 50\nregistryPullQPS: 0", Berth: "imagePullStallTimeout: 15s",
			})
			put(t, a, "steady", sleeper)
			a.WaitReady(t, "steady")
			before := running(podOf(t, a, "steady"))
			for repository := range says {
				put(t, a, repository, sleeping(host+"/"+repository+":v1"))
			}
			names := map[string]string{
				"upper": "Registry.example/Team/App:v1", "colon": "registry.example/app:",
				"slashes": "registry.example//app:v1", "digest": "app@sha256:12",
				"algorithm": "app@md5:" + strings.Repeat("0", 32), "scheme": "https://registry.example/app:v1",
				"hex": strings.Repeat("0", 64), "long": strings.Repeat("a", 300) + ":v1",
				"tag": "app:" + strings.Repeat("t", 200), "control": "app:v1\a", "dots": "../../app:v1",
			}
			for name, image := range names {
				put(t, a, name, sleeping(strconv.Quote(image)))
			}
			for name := range names {
				p := waitPod(t, a, name, "waiting", waitingFor("InvalidImageName"))
				if s := statusOf(p, "main").State.Waiting; !strings.HasPrefix(s.Message,
					"Failed to apply default image tag ") {
					t.Errorf("%s: %s", name, s.Message)
				}
				waitEvent(t, a, "InspectFailed", name)
			}
			for _, repository := range slices.Sorted(maps.Keys(says)) {
				p := waitPod(t, a, repository, "backing off", func(p *corev1.Pod) error {
					s := statusOf(p, "main").State.Waiting
					if s == nil || s.Reason != "ImagePullBackOff" && s.Reason != "ErrImagePull" {
						return fmt.Errorf("it is %+v", statusOf(p, "main").State)
					}
					// on a busy machine a pull may stall before it gets its answer
					if !strings.Contains(s.Message, says[repository]) {
						return fmt.Errorf("it says %.500s, want %s", s.Message, says[repository])
					}
					return nil
				})
				message := statusOf(p, "main").State.Waiting.Message
				if len(message) < 20 || len(message) > 4096 {
					t.Errorf("%s: the message has %d bytes: %.500s", repository, len(message), message)
				}
				t.Logf("%s: %.300q", repository, message)
			}
			out, _, _ := a.CLI("images")
			if strings.ContainsAny(out, "\x1b\x07\u202e") {
				t.Errorf("control characters are printed: %q", out)
			}
			env.Eventually(t, "all pulls to be told of", func() error {
				if pulls := answers[api.Images](t, a, "images").Pulls; len(pulls) != len(says) {
					return fmt.Errorf("%d are, want %d", len(pulls), len(says))
				}
				return nil
			})
			if after := running(podOf(t, a, "steady")); after != before {
				t.Errorf("the steady pod was %s and is %s", before, after)
			}
			for name := range says {
				a.RemoveManifest(t, name+".yaml")
			}
			env.Eventually(t, "no pull to be left", func() error {
				if pulls := answers[api.Images](t, a, "images").Pulls; len(pulls) != 0 {
					return fmt.Errorf("there are %+v", pulls)
				}
				return nil
			})
		})
	}
}
