//go:build integration

package native

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/images"
)

// A container mounts an image, and a part of it. The image stays there while the container runs,
// also over a restart of berth and a removal of the image, and nothing stays when both are gone.
func TestImageVolumes(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-volumes")
	first := h.runtime(t)
	p := h.newPod(t, first, "volumes", "", nil)
	config := p.container("main", "exec sleep 1000")
	config.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/web", Image: &runtimeapi.ImageSpec{Image: images.Web}},
		{ContainerPath: "/part", Image: &runtimeapi.ImageSpec{Image: images.Web}, ImageSubPath: "www"},
	}
	id := p.start(config)
	look := func(when string) {
		t.Helper()
		const script = `cat /web/www/index.html /part/index.html; echo x 2>/dev/null >/part/x || echo read-only`
		const want = "hello from the image\nhello from the image\nread-only\n"
		said, err := p.runtime.ExecSync(t.Context(), id, []string{"sh", "-c", script}, 0)
		if err != nil || string(said.Stdout) != want {
			t.Errorf("%s: the container has %v, %v", when, said, err)
		}
	}
	look("at first")
	if info, err := os.Stat(first.volumeDir(id)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the node's users may come to the image: %v, %v", info, err)
	}
	for name, m := range map[string]*runtimeapi.Mount{
		"no such part":  {Image: &runtimeapi.ImageSpec{Image: images.Web}, ImageSubPath: "none"},
		"no such image": {Image: &runtimeapi.ImageSpec{Image: "berth.local/none:v1"}},
		"outside":       {Image: &runtimeapi.ImageSpec{Image: images.Web}, ImageSubPath: "../../../../.." + h.Dir},
	} {
		bad := p.container("bad", "true")
		m.ContainerPath = "/x"
		bad.Mounts = append([]*runtimeapi.Mount{config.Mounts[0]}, m)
		if _, err := p.runtime.CreateContainer(t.Context(), p.id, bad, p.config); err == nil || errdefs.IsNotFound(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if got := volumesOf(t, h); len(got) != 2 {
		t.Errorf("there are the snapshots %q, want two", got)
	}
	first.Close()
	p.runtime = h.runtime(t)
	if err := p.runtime.RemoveImage(t.Context(), &runtimeapi.ImageSpec{Image: images.Web}); err != nil {
		t.Error(err)
	}
	look("without the image, after a restart")
	p.remove()
	if got := volumesOf(t, h); len(got) > 0 {
		t.Errorf("left are the snapshots %q", got)
	}
}

// volumesOf returns the names of the snapshots of images that containers mount.
func volumesOf(t *testing.T, h *host) []string {
	t.Helper()
	var found []string
	for _, snapshotter := range []string{"overlayfs", "native"} {
		err := h.client.SnapshotService(snapshotter).Walk(t.Context(), func(_ context.Context, s snapshots.Info) error {
			if strings.Contains(s.Name, "-volume-") {
				found = append(found, s.Name)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}
