//go:build integration

package containerd_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/containerd"
	"github.com/berthd/berth/cri/remote"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// dialled returns a client of an environment's containerd. The end of the test closes it.
func dialled(t *testing.T, e *env.Env) *containerd.Runtime {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	r, err := remote.Dial(t.Context(), remote.Config{
		Endpoint:       e.Endpoint,
		RequestTimeout: 2 * time.Minute,
		Logger:         log,
	})
	if err != nil {
		t.Fatal(err)
	}
	own := containerd.New(containerd.Config{RequestTimeout: 2 * time.Minute, Logger: log}, r)
	t.Cleanup(func() {
		own.Close()
		if err := r.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return own
}

// webArchive returns the file of the sample image [images.Web].
func webArchive(t *testing.T, e *env.Env) string {
	t.Helper()
	archives, err := images.Build(t.Context(), e.Checkout)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(archives, func(a images.Archive) bool { return a.Name == images.Web })
	if i < 0 {
		t.Fatalf("no sample image %s", images.Web)
	}
	return archives[i].Path
}

func TestImport(t *testing.T) {
	t.Parallel()
	for _, version := range []string{env.Containerd24, env.ContainerdDebian} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			e := env.Containerd(t, env.Options{Version: version})
			r := dialled(t, e)
			path := webArchive(t, e)
			spec := &runtimeapi.ImageSpec{Image: images.Web}
			if err := r.RemoveImage(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				names, err := r.Import(t.Context(), path)
				if err != nil || !slices.Equal(names, []string{images.Web}) {
					t.Fatalf("import gave %v and error %v, want %s", names, err, images.Web)
				}
				image, err := r.ImageStatus(t.Context(), spec)
				if err != nil || image == nil {
					t.Fatalf("status of the imported image is %v and error %v", image, err)
				}
				if version == env.Containerd24 && !image.GetPinned() {
					t.Errorf("image %v is not pinned", image)
				}
				// The plugin looks up the images of volumes by their IDs, which are names in
				// containerd.
				if err := e.Untag(t.Context(), image.GetId()); err != nil {
					t.Errorf("the image has no name that is its id: %v", err)
				}
			}
			if _, err := r.Import(t.Context(), "/nonexistent.tar"); err == nil {
				t.Error("importing a file that is not there succeeded")
			}
			if _, err := r.Import(t.Context(), "/proc/self/exe"); err == nil {
				t.Error("importing a program succeeded")
			}
		})
	}
}

// TestImportTakesTheNameOver imports two archives of the same name, as somebody does who builds an
// image again and again. The first image becomes one that a garbage collection may have.
func TestImportTakesTheNameOver(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{Version: env.Containerd24})
	r := dialled(t, e)
	const name = "berth.local/rebuilt:v1"
	status := func(image string) *runtimeapi.Image {
		t.Helper()
		found, err := r.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: image})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	var ids []string
	for _, content := range []string{"one", "two"} {
		path := filepath.Join(t.TempDir(), "rebuilt.tar")
		built := images.Image{Name: name, Files: []images.File{{Path: "/app", Mode: 0o755, Body: []byte(content)}}}
		if err := images.Write(path, built); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Import(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "the name is the new image's", func() error {
			if id := status(name).GetId(); slices.Contains(ids, id) {
				return fmt.Errorf("it is still that of %s", id)
			}
			return nil
		})
		ids = append(ids, status(name).GetId())
		if !status(name).GetPinned() {
			t.Errorf("%s is not pinned", name)
		}
	}
	env.Eventually(t, "the first image loses its pin", func() error {
		if old := status(ids[0]); old.GetPinned() {
			return fmt.Errorf("it is %v", old)
		}
		return nil
	})
	if err := r.Unpin(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the second image loses its pin", func() error {
		if now := status(name); now.GetPinned() {
			return fmt.Errorf("it is %v", now)
		}
		return nil
	})
}

func TestSurvivesContainerdsDeath(t *testing.T) {
	t.Parallel()
	for _, version := range []string{env.Containerd24, env.ContainerdDebian} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			e := env.Containerd(t, env.Options{Version: version})
			r := dialled(t, e)
			for range 2 {
				events, err := r.Events(t.Context())
				if err != nil {
					t.Fatalf("subscribe: %v", err)
				}
				if err := e.Kill9(); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				for open := true; open; {
					select {
					case _, open = <-events:
					case <-ctx.Done():
						t.Fatal("the event stream outlives containerd")
					}
				}
				cancel()
				if _, err := r.Version(t.Context()); !errdefs.IsUnavailable(err) {
					t.Errorf("while containerd is dead: %v, want unavailable", err)
				}
				if err := e.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				env.Eventually(t, "containerd answers again", func() error {
					_, err := r.ListPodSandbox(t.Context(), nil)
					if err != nil && !errdefs.IsUnavailable(err) && !errdefs.IsNotImplemented(err) {
						t.Errorf("while containerd starts: %v, want unavailable", err)
					}
					return err
				})
			}
		})
	}
}

// TestPin pins an image that was pulled, twice, and an image that does not exist.
func TestPin(t *testing.T) {
	t.Parallel()
	for _, version := range []string{env.Containerd24, env.ContainerdDebian} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			e := env.Containerd(t, env.Options{Version: version})
			runtime := dialled(t, e)
			spec := &runtimeapi.ImageSpec{Image: images.Web}
			if image, err := runtime.ImageStatus(t.Context(), spec); err != nil || image.GetPinned() {
				t.Fatalf("before, the image is %v, %v", image, err)
			}
			for range 2 {
				if err := runtime.Pin(t.Context(), images.Web); err != nil {
					t.Fatal(err)
				}
			}
			if version == env.Containerd24 { // Debian's containerd has no pins
				env.Eventually(t, "the CRI to say so", func() error {
					if image, err := runtime.ImageStatus(t.Context(), spec); err != nil || !image.GetPinned() {
						return fmt.Errorf("the image is %v, %w", image, err)
					}
					return nil
				})
			}
			if err := runtime.Pin(t.Context(), "berth.local/none:v1"); !errdefs.IsNotFound(err) {
				t.Errorf("pinning what is not there: %v", err)
			}
		})
	}
}
