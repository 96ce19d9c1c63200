//go:build integration

package integration

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/berthd/berth/cri/containerd"
	"github.com/berthd/berth/cri/remote"
	"github.com/berthd/berth/cri/suite"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// versions are the versions of containerd that berth is tested with.
var versions = []string{env.Containerd24, env.ContainerdDebian}

// dial returns a client of the environment's containerd that is closed before the environment is.
func dial(t *testing.T, e *env.Env) *containerd.Runtime {
	t.Helper()
	remoteOnly(t, "it uses the CRI plugin itself; the tests of cri/native are like it")
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

func TestCRIContract(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
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
