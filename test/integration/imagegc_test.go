//go:build integration

package integration

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// TestImageGC removes an image that nothing uses from real containerd. The image of a pod that runs
// and the sandbox image stay, also on a containerd that pins no images. The times of use outlive
// the agent.
func TestImageGC(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			e := env.Containerd(t, env.Options{Version: version})
			a := e.StartAgent(t, env.AgentOptions{Kubelet: "imageMinimumGCAge: 1ms"})
			a.WaitUp(t)
			put(t, a, "user", sleeper)
			a.WaitReady(t, "user")
			cli := func(args ...string) string {
				t.Helper()
				out, errOut, code := a.CLI(args...)
				if code != 0 {
					t.Fatalf("berth %v: code %d: %s", args, code, errOut)
				}
				return out
			}
			known := func() []string {
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
			before := known()
			if !slices.Contains(before, images.Busybox) {
				t.Fatalf("containerd has %q", before)
			}
			would := cli("images", "prune", "--dry-run")
			if !strings.Contains(would, "Would remove "+images.Busybox+" (") || strings.Contains(would, images.Web) ||
				strings.Contains(would, images.Pause) {
				t.Errorf("a dry run says %s", would)
			}
			if got := known(); !slices.Equal(got, before) {
				t.Errorf("a dry run removed images: %q", got)
			}
			if did := cli("images", "prune"); !strings.Contains(did, "Removed "+images.Busybox+" (") {
				t.Errorf("the removal says %s", did)
			}
			if got := known(); !slices.Equal(got, []string{images.Pause, images.Web}) {
				t.Errorf("containerd has %q", got)
			}
			put(t, a, "next", sleeper)
			a.WaitReady(t, "next")
			removed(t, e, a, "next")
			removed(t, e, a, "user")

			lastUse := func() api.Image {
				t.Helper()
				var list api.Images
				if err := json.Unmarshal([]byte(cli("images", "-o", "json")), &list); err != nil {
					t.Fatal(err)
				}
				for _, i := range list.Items {
					if slices.Contains(i.Tags, images.Web) {
						return i
					}
				}
				t.Fatalf("images %+v", list.Items)
				return api.Image{}
			}
			first := lastUse()
			if first.InUse || first.LastUsed.IsZero() {
				t.Errorf("after the pods: %+v", first)
			}
			a.Kill9()
			if err := a.Start(); err != nil {
				t.Fatal(err)
			}
			a.WaitUp(t)
			if again := lastUse(); again.InUse || again.LastUsed.IsZero() || again.LastUsed.After(first.LastUsed) {
				t.Errorf("after a restart: %+v, before %+v", again, first)
			}
			cli("images", "prune")
			if got := known(); !slices.Equal(got, []string{images.Pause}) {
				t.Errorf("containerd has %q", got)
			}
		})
	}
}
