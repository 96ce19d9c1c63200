//go:build integration

package images

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/env"
)

// ownStore is an image service in a namespace of its own.
type ownStore struct {
	*testing.T
	*Service
	dir string // of hosts.toml files
}

func newStore(t *testing.T, e *env.Env, namespace string) *ownStore {
	t.Helper()
	c, err := client.New(strings.TrimPrefix(e.Endpoint, "unix://"), client.WithDefaultNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	st := &ownStore{T: t, dir: t.TempDir()}
	st.Service = New(Config{RegistryDir: st.dir, Stall: time.Minute}, c)
	t.Cleanup(func() {
		st.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

func (s *ownStore) pullAs(image string, auth *runtimeapi.AuthConfig) (string, error) {
	return s.PullImage(s.Context(), &runtimeapi.ImageSpec{Image: image}, auth, nil)
}

func (s *ownStore) mustPull(image string) string {
	s.Helper()
	id, err := s.pullAs(image, nil)
	if err != nil {
		s.Fatal(err)
	}
	return id
}

// status returns nil if there is no such image.
func (s *ownStore) status(name string) *runtimeapi.Image {
	s.Helper()
	img, err := s.ImageStatus(s.Context(), &runtimeapi.ImageSpec{Image: name})
	if err != nil {
		s.Fatal(err)
	}
	return img
}

func (s *ownStore) remove(name string) {
	s.Helper()
	if err := s.RemoveImage(s.Context(), &runtimeapi.ImageSpec{Image: name}); err != nil {
		s.Fatal(err)
	}
}

// unpacked reports whether containerd has all of an image, ready to run.
func (s *ownStore) unpacked(name string) bool {
	s.Helper()
	img, err := s.client.GetImage(s.Context(), name)
	if err != nil {
		s.Fatal(err)
	}
	ok, err := img.IsUnpacked(s.Context(), s.disk.snapshotter)
	if err != nil {
		s.Fatal(err)
	}
	return ok
}

// used returns what all layers take.
func (s *ownStore) used() uint64 {
	s.Helper()
	info, err := s.ImageFsInfo(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	fs := info.ImageFilesystems[0]
	if _, err := os.Stat(fs.FsId.Mountpoint); err != nil || fs.Timestamp <= 0 {
		s.Errorf("file system is %v: %v", fs, err)
	}
	return fs.UsedBytes.Value
}

// noLeases waits until nothing keeps the downloads of pulls that have ended.
func (s *ownStore) noLeases() {
	s.Helper()
	env.Eventually(s.T, "no lease", func() error {
		left, err := s.client.LeasesService().List(s.Context())
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d leases are left", len(left))
		}
		return err
	})
}

func TestImages(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	for name, run := range map[string]func(*ownStore){
		"life": life, "moved": movedTag, "pinned": pinned, "login": logins, "tls": overTLS, "mirror": mirror,
		"once": once, "fails": fails, "stalls": stalls, "parallel": parallel, "bydigest": byDigest,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(newStore(t, e, "images-"+name))
		})
	}
}

func life(s *ownStore) {
	r := newRegistry(s.T, false)
	id, other := r.push(s.T, "app", "v1", 3), r.push(s.T, "other", "v1", 2)
	name := r.host + "/app:v1"
	if got := s.mustPull(name); got != id {
		s.Errorf("the pull returned %s, want %s", got, id)
	}
	empty := s.used()
	if got := s.mustPull(r.host + "/other:v1"); got != other {
		s.Errorf("the pull returned %s, want %s", got, other)
	}
	img := s.status(name)
	if img.GetId() != id || !slices.Equal(img.RepoTags, []string{name}) || len(img.RepoDigests) != 1 ||
		!strings.HasPrefix(img.RepoDigests[0], r.host+"/app@sha256:") || img.Size < 3*32<<10 || img.Uid.GetValue() != 1000 {
		s.Errorf("status is %v", img)
	}
	list, err := s.ListImages(s.Context())
	if err != nil || len(list) != 2 {
		s.Errorf("the list is %v, %v", list, err)
	}
	if used := s.used(); used < empty+2*32<<10 {
		s.Errorf("used %d bytes, want two layers more than %d", used, empty)
	}
	s.remove(r.host + "/other:v1") // containerd collects garbage before this returns
	if s.status(other) != nil {
		s.Error("the removed image is still there")
	}
	if used := s.used(); used != empty {
		s.Errorf("used %d bytes after the removal, want %d", used, empty)
	}
	if !s.unpacked(name) {
		s.Error("the garbage collection took what is in use")
	}
	s.remove(id)
	s.remove(id)
	if list, err := s.ListImages(s.Context()); err != nil || len(list) != 0 {
		s.Errorf("left: %v, %v", list, err)
	}
	if used := s.used(); used != 0 {
		s.Errorf("used %d bytes in the end", used)
	}
}

// A tag moves. The old image stays, by its ID and its digest.
func movedTag(s *ownStore) {
	r := newRegistry(s.T, false)
	name := r.host + "/app:v1"
	before := r.push(s.T, "app", "v1", 1)
	s.mustPull(name)
	after := r.push(s.T, "app", "v1", 1)
	if got := s.mustPull(name); got != after || s.status(name).GetId() != after {
		s.Errorf("the tag is %s, want %s", got, after)
	}
	old := s.status(before)
	if old == nil || len(old.RepoTags) != 0 || len(old.RepoDigests) != 1 {
		s.Fatalf("the old image is %v", old)
	}
	if !s.unpacked(old.RepoDigests[0]) {
		s.Error("the old image lost its layers")
	}
	s.remove(before)
	if s.status(name) == nil {
		s.Error("the new image went with the old one")
	}
}

func byDigest(s *ownStore) {
	r := newRegistry(s.T, false)
	id := r.push(s.T, "app", "v1", 1)
	s.mustPull(r.host + "/app:v1")
	name := s.status(id).RepoDigests[0]
	s.remove(id)
	if got := s.mustPull(name); got != id {
		s.Errorf("got %s, want %s", got, id)
	}
	if img := s.status(name); img == nil || len(img.RepoTags) != 0 || !slices.Equal(img.RepoDigests, []string{name}) {
		s.Errorf("status is %v", img)
	}
}

func pinned(s *ownStore) {
	r := newRegistry(s.T, false)
	name := r.host + "/app:v1"
	r.push(s.T, "app", "v1", 1)
	if err := s.Pin(s.Context(), name); !errdefs.IsNotFound(err) {
		s.Errorf("pinning what is not there: got %v", err)
	}
	s.mustPull(name)
	if s.status(name).Pinned {
		s.Error("it is pinned before anybody asked")
	}
	for range 2 {
		if err := s.Pin(s.Context(), name); err != nil {
			s.Fatal(err)
		}
	}
	s.mustPull(name) // a pull does not lose the pin
	if !s.status(name).Pinned {
		s.Error("it is not pinned")
	}
	if err := s.Unpin(s.Context(), name); err != nil || s.status(name).Pinned {
		s.Errorf("unpinning: %v, %v", s.status(name), err)
	}
	if err := s.Pin(s.Context(), name); err != nil {
		s.Error(err)
	}
	s.remove(name) // a pin is a recommendation
	if s.status(name) != nil {
		s.Error("it could not be removed")
	}
	s.cfg.Keep = name
	s.mustPull(name)
	if !s.status(name).Pinned {
		s.Error("the image to keep is not pinned")
	}
	s.remove(name)
}

func logins(s *ownStore) {
	r := newRegistry(s.T, false)
	r.push(s.T, "app", "v1", 1)
	r.set(func(w http.ResponseWriter, req *http.Request) bool {
		user, password, _ := req.BasicAuth()
		if user == "ann" && password == "word" || req.Header.Get("Authorization") == "Bearer token" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	name := r.host + "/app:v1"
	for what, auth := range map[string]*runtimeapi.AuthConfig{
		"none":                   nil,
		"a wrong one":            {Username: "ann", Password: "no-secret"},
		"one for another server": {Username: "ann", Password: "word", ServerAddress: "r.example"},
	} {
		_, err := s.pullAs(name, auth)
		if err == nil || strings.Contains(err.Error(), "secret") {
			s.Errorf("with login %s: got %v", what, err)
		}
	}
	for what, auth := range map[string]*runtimeapi.AuthConfig{
		"password":       {Username: "ann", Password: "word"},
		"auth":           {Auth: "YW5uOndvcmQ="},
		"registry token": {RegistryToken: "token"},
	} {
		if _, err := s.pullAs(name, auth); err != nil {
			s.Errorf("with login %s: got %v", what, err)
		}
		s.remove(name)
	}
}

func overTLS(s *ownStore) {
	r := newRegistry(s.T, true)
	r.push(s.T, "app", "v1", 1)
	// The registry's name is not loopback's, which would be trusted without a certificate.
	const name = "registry.invalid:5000"
	server := fmt.Sprintf("server = %q\n", r.URL)
	trust(s.T, s.dir, name, server, nil)
	if _, err := s.pullAs(name+"/app:v1", nil); err == nil {
		s.Error("a certificate of an unknown authority was accepted")
	}
	trust(s.T, s.dir, name, server+"ca = \"ca.pem\"\n", r)
	s.mustPull(name + "/app:v1")
}

// A mirror gets no login, and the registry itself is asked if the mirror fails.
func mirror(s *ownStore) {
	r, m := newRegistry(s.T, false), newRegistry(s.T, false)
	r.push(s.T, "app", "v1", 1)
	id := m.push(s.T, "app", "v1", 1)
	trust(s.T, s.dir, r.host, fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", m.URL), nil)
	auth := &runtimeapi.AuthConfig{Username: "ann", Password: "word"}
	m.set(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Header.Get("Authorization") != "" {
			s.Error("the mirror got the login")
		}
		return false
	})
	if got, err := s.pullAs(r.host+"/app:v1", auth); err != nil || got != id {
		s.Errorf("got %s, %v, want the mirror's %s", got, err, id)
	}
	if r.asked("/") > 0 {
		s.Error("the registry was asked though its mirror has the image")
	}
	m.set(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	if got, err := s.pullAs(r.host+"/app:v1", auth); err != nil || got == id {
		s.Errorf("got %s, %v, want the registry's own", got, err)
	}
}

// Many pull at once: each layer is downloaded once.
func once(s *ownStore) {
	r := newRegistry(s.T, false)
	id := r.push(s.T, "app", "v1", 2)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := s.pullAs(r.host+"/app:v1", nil); err != nil || got != id {
				s.Errorf("got %s, %v", got, err)
			}
		})
	}
	wg.Wait()
	r.mu.Lock()
	blobs := len(r.blobs)
	r.mu.Unlock()
	if got := r.asked("/blobs/"); got != blobs {
		s.Errorf("%d downloads of %d blobs", got, blobs)
	}
}

func fails(s *ownStore) {
	r := newRegistry(s.T, false)
	r.push(s.T, "app", "v1", 2)
	for name, class := range map[string]func(error) bool{
		r.host + "/app:v2":  errdefs.IsNotFound,
		r.host + "/none:v1": errdefs.IsNotFound,
		"Not A Name":        errdefs.IsInvalidArgument,
		"127.0.0.1:1/app:v1": func(err error) bool {
			return strings.Contains(err.Error(), "connection refused")
		},
	} {
		if _, err := s.pullAs(name, nil); !class(err) {
			s.Errorf("pull %s: got %v (%T)", name, err, err)
		}
	}
	// The connection breaks in the middle of a layer, and the registry answers rubbish.
	for what, answer := range map[string]func(http.ResponseWriter){
		"broken": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write([]byte("half"))
		},
		"rubbish": func(w http.ResponseWriter) { _, _ = w.Write([]byte("rubbish")) },
		"error":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		r.set(func(w http.ResponseWriter, req *http.Request) bool {
			if !strings.Contains(req.URL.Path, "/blobs/") {
				return false
			}
			answer(w)
			return true
		})
		if id, err := s.pullAs(r.host+"/app:v1", nil); err == nil {
			s.Errorf("%s: got %s", what, id)
		}
		if s.status(r.host+"/app:v1") != nil {
			s.Errorf("%s: half an image is shown", what)
		}
	}
	r.set(nil)
	s.mustPull(r.host + "/app:v1")
}

// The registry begins an answer and then sends nothing; and the caller gives up.
func stalls(s *ownStore) {
	r := newRegistry(s.T, false)
	r.push(s.T, "app", "v1", 1)
	asked := make(chan struct{}, 100)
	r.set(func(_ http.ResponseWriter, req *http.Request) bool {
		if !strings.Contains(req.URL.Path, "/blobs/") {
			return false
		}
		asked <- struct{}{}
		<-req.Context().Done()
		return true
	})
	ctx, giveUp := context.WithCancel(s.Context())
	defer giveUp()
	got := make(chan error, 1)
	go func() {
		_, err := s.PullImage(ctx, &runtimeapi.ImageSpec{Image: r.host + "/app:v1"}, nil, nil)
		got <- err
	}()
	<-asked
	giveUp()
	if err := <-got; !errors.Is(err, context.Canceled) {
		s.Errorf("giving up: got %v", err)
	}
	s.noLeases()
	impatient := New(Config{RegistryDir: s.dir, Stall: 200 * time.Millisecond}, s.client)
	defer impatient.Close()
	_, err := impatient.PullImage(s.Context(), &runtimeapi.ImageSpec{Image: r.host + "/app:v1"}, nil, nil)
	if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "sent nothing for 200ms") {
		s.Errorf("a silent registry: got %v", err)
	}
	r.set(nil)
	s.mustPull(r.host + "/app:v1")
}

// Layers are downloaded beside each other: each download waits for another one to begin.
func parallel(s *ownStore) {
	r := newRegistry(s.T, false)
	r.push(s.T, "app", "v1", 2)
	config := ""
	for d, data := range r.blobs {
		if len(data) < 16<<10 {
			config = d.String()
		}
	}
	var both sync.WaitGroup
	both.Add(2)
	r.set(func(_ http.ResponseWriter, req *http.Request) bool {
		if strings.Contains(req.URL.Path, "/blobs/") && !strings.Contains(req.URL.Path, config) {
			both.Done()
			both.Wait()
		}
		return false
	})
	s.mustPull(r.host + "/app:v1")
}

// Names that containerd has from elsewhere do no harm: a second name of an image, one that is no
// reference, and one whose content is missing.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	s := newStore(t, env.Containerd(t, env.Options{}), "images-foreign")
	r := newRegistry(t, false)
	id := r.push(t, "app", "v1", 1)
	s.mustPull(r.host + "/app:v1")
	named, err := s.client.ImageService().Get(t.Context(), r.host+"/app:v1")
	if err != nil {
		t.Fatal(err)
	}
	lost := named.Target
	lost.Digest = digest.NewDigestFromEncoded(digest.SHA256, strings.Repeat("0", 64))
	for name, img := range map[string]images.Image{
		"second": {Name: "r.example/second:v1", Target: named.Target},
		"id":     {Name: id, Target: named.Target},
		"lost":   {Name: "r.example/lost:v1", Target: lost},
	} {
		if _, err := s.client.ImageService().Create(t.Context(), img); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	list, err := s.ListImages(t.Context())
	tags := []string{r.host + "/app:v1", "r.example/second:v1"}
	if err != nil || len(list) != 1 || !slices.Equal(list[0].RepoTags, tags) {
		t.Errorf("the list is %v, %v", list, err)
	}
	s.remove(id)
	left, err := s.client.ImageService().List(t.Context())
	if err != nil || len(left) != 1 || left[0].Name != "r.example/lost:v1" {
		t.Errorf("left: %v, %v", left, err)
	}
}
