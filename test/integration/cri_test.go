//go:build integration

package integration

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/remote"
	"github.com/berthd/berth/cri/suite"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// versions are the containerds that berth is tested with.
var versions = []string{env.Containerd24, env.ContainerdDebian}

// dial returns a client of the environment's containerd that is closed before the environment is.
func dial(t *testing.T, e *env.Env) *remote.Runtime {
	t.Helper()
	r, err := remote.Dial(t.Context(), remote.Config{
		Endpoint: e.Endpoint, RequestTimeout: 2 * time.Minute, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return r
}

func TestCRIContract(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			e := env.Containerd(t, env.Options{Version: version})
			registry := newRegistry(t, archiveOf(t, e, images.Pause))
			suite.Run(t, func(t *testing.T) suite.Target {
				return suite.Target{
					Runtime: dial(t, e), Image: images.Busybox, CgroupParent: e.CgroupRoot,
					PullImage: registry.Host + "/suite/pause:v1",
				}
			})
		})
	}
}

// archiveOf returns the path of a sample image's archive.
func archiveOf(t *testing.T, e *env.Env, name string) string {
	t.Helper()
	archives, err := images.Build(t.Context(), e.Checkout)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(archives, func(a images.Archive) bool { return a.Name == name })
	if i < 0 {
		t.Fatalf("no sample image %s", name)
	}
	return archives[i].Path
}

func TestCRIImport(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			e := env.Containerd(t, env.Options{Version: version})
			r := dial(t, e)
			path := archiveOf(t, e, images.Web)
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
				// The plugin looks up the images of volumes by their ids, as names of containerd's.
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

func TestCRISurvivesContainerdsDeath(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			e := env.Containerd(t, env.Options{Version: version})
			r := dial(t, e)
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
