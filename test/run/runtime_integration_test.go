//go:build integration

package main

import (
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// TestHostsContainerdIsLeftAsItWas uses an environment's containerd as if it were the host's, and
// checks that it is unchanged afterwards.
func TestHostsContainerdIsLeftAsItWas(t *testing.T) {
	host := env.Containerd(t, env.Options{})
	if err := host.Untag(t.Context(), images.Web); err != nil {
		t.Fatal(err)
	}
	before := imagesOf(t, host)

	rt, err := openRuntime(t.Context(), options{endpoint: host.Endpoint})
	if err != nil {
		t.Fatal(err)
	}
	if rt.private {
		t.Error("the host's containerd was not used")
	}
	if !rt.has(t.Context(), images.Web) || !slices.Contains(rt.added, images.Web) {
		t.Errorf("the missing image was not imported; added %v", rt.added)
	}
	if slices.Contains(rt.added, images.Pause) {
		t.Errorf("an image that was there counts as added: %v", rt.added)
	}
	if err := rt.close(); err != nil {
		t.Fatal(err)
	}
	if after := imagesOf(t, host); !slices.Equal(before, after) {
		t.Errorf("images before %v, after %v", before, after)
	}
}

func TestDeadHostRuntimeIsNotUsed(t *testing.T) {
	rt, err := openRuntime(t.Context(), options{endpoint: "unix:///nonexistent/containerd.sock"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.close(); err != nil {
			t.Errorf("close the runtime: %v", err)
		}
	})
	if !rt.private {
		t.Error("no private containerd was started")
	}
}

func imagesOf(t *testing.T, e *env.Env) []string {
	t.Helper()
	list, err := e.Images().ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range list.Images {
		names = append(names, i.RepoTags...)
	}
	slices.Sort(names)
	return names
}
