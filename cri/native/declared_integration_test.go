//go:build integration

package native

import (
	"os"
	"path/filepath"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// declaring is an image with volumes.
const declaring = "berth.local/declaring:v1"

// importDeclaring imports an image with busybox that declares volumes.
func (h *host) importDeclaring(t *testing.T) {
	t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "declaring.tar")
	err = images.Write(archive, images.Image{
		Name:   declaring,
		Config: ocispec.ImageConfig{Volumes: map[string]struct{}{"/data": {}, "/empty": {}, "/mine": {}}},
		Files: []images.File{
			{Path: "/bin", Mode: os.ModeDir | 0o755},
			{Path: "/bin/busybox", Mode: 0o755, Body: program},
			{Path: "/bin/sh", Link: "/bin/busybox"},
			{Path: "/etc", Mode: os.ModeDir | 0o755},
			{Path: "/etc/passwd", Mode: 0o644, Body: []byte("root:x:0:0::/:/bin/sh\n")},
			{Path: "/data", Mode: os.ModeDir | 0o750, UID: 33, GID: 44},
			{Path: "/data/file", Mode: 0o640, Body: []byte("from the image\n"), UID: 1000, GID: 1000},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := h.client.Import(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

// A container writes to the volumes of its image also with a read-only root, as the users of its
// own namespace if it has one. The next container of the image has those of the image again.
func TestVolumesOfImage(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-declared")
	h.importDeclaring(t)
	r := h.runtime(t)
	ids := []*runtimeapi.IDMapping{{ContainerId: 0, HostId: 1_000_000, Length: 65536}}
	for name, userns := range map[string]*runtimeapi.UserNamespace{
		"host-users": nil, "own-users": {Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids},
	} {
		t.Run(name, func(t *testing.T) {
			p := h.newPod(t, r, name, env.NewerHandler, func(c *runtimeapi.PodSandboxConfig) {
				c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = userns
			})
			mine := t.TempDir()
			if err := os.Chmod(mine, 0o777); err != nil {
				t.Fatal(err)
			}
			const script = `b=/bin/busybox; $b cat /data/file; $b stat -c %u:%g:%a /data /data/file; echo x >/data/x; ` +
				`echo x >/empty/x; $b ls /data /empty; $b ls /mine; echo x 2>/dev/null >/x || echo read-only`
			const want = "from the image\n33:44:750\n1000:1000:640\n/data:\nfile\nx\n\n/empty:\nx\nread-only\n"
			for _, run := range []string{"first", "second"} {
				config := p.container(run, script)
				config.Image.Image, config.Command[0] = declaring, "/bin/sh"
				config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/mine", HostPath: mine}}
				config.Linux.SecurityContext.ReadonlyRootfs = true
				config.Linux.SecurityContext.NamespaceOptions.UsernsOptions = userns
				if got := p.says(config); got != want {
					t.Errorf("the %s container said %q, want %q", run, got, want)
				}
			}
			p.remove()
		})
	}
}
