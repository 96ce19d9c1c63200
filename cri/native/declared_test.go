package native

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/native/images"
	"github.com/berthd/berth/internal/mounttable"
)

func TestDeclaredPlaces(t *testing.T) {
	declared := map[string]struct{}{
		"/data": {}, "cache": {}, "/a/../b/": {}, "/b": {}, "/taken": {}, "/etc/hosts": {}, "/": {}, "/proc": {},
		"/sys/fs/cgroup": {}, "/dev/shm": {}, "/devices": {}, "../../up": {},
	}
	got := declaredPlaces(declared, []specs.Mount{{Destination: "/taken"}, {Destination: "/etc/hosts"}})
	if want := []string{"/b", "/cache", "/data", "/devices", "/up"}; !slices.Equal(got, want) {
		t.Errorf("the volumes are at %q, want %q", got, want)
	}
}

// unpacked is a snapshotter whose only image is in a directory.
type unpacked struct {
	snapshots.Snapshotter
	dir   string
	views map[string]bool
}

func (u *unpacked) View(_ context.Context, key, _ string, _ ...snapshots.Opt) ([]mount.Mount, error) {
	u.views[key] = true
	return []mount.Mount{{Type: "bind", Source: u.dir, Options: []string{"rbind", "ro"}}}, nil
}

func (u *unpacked) Remove(_ context.Context, key string) error {
	if !u.views[key] {
		return notFound("snapshot", key)
	}
	delete(u.views, key)
	return nil
}

// newUnpacked returns an image with files of many kinds.
func newUnpacked(t *testing.T) *unpacked {
	t.Helper()
	u := &unpacked{dir: t.TempDir(), views: map[string]bool{}}
	at := func(name string) string { return filepath.Join(u.dir, name) }
	err := errors.Join(
		os.MkdirAll(at("data/sub"), 0o755), os.MkdirAll(at("etc"), 0o755),
		os.WriteFile(at("data/file"), []byte("content"), 0o600), os.WriteFile(at("etc/own"), []byte("the image's"), 0o644),
		os.Link(at("data/file"), at("data/sub/same")), os.Symlink("/etc/passwd", at("data/link")),
		os.Symlink("/etc", at("outside")), os.WriteFile(at("plain"), nil, 0o644),
		os.Lchown(at("data/file"), 1234, 2345), os.Chmod(at("data/file"), fs.ModeSetuid|0o751),
		os.Lchown(at("data"), 33, 44), os.Chmod(at("data"), fs.ModeSticky|0o770),
	)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// declared makes the volumes of an image that declares places, and returns the spec of the
// container.
func (r *Runtime) declared(t *testing.T, id string, ids []*runtimeapi.IDMapping, places ...string) (*oci.Spec, error) {
	t.Helper()
	img := &images.Usable{Snapshotter: "overlayfs"}
	img.Settings.Volumes = map[string]struct{}{}
	for _, place := range places {
		img.Settings.Volumes[place] = struct{}{}
	}
	options := &runtimeapi.NamespaceOption{}
	if ids != nil {
		options.UsernsOptions = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
	}
	sb := newSandbox(sandboxRecord{ID: "sb", Config: message[*runtimeapi.PodSandboxConfig]{&runtimeapi.PodSandboxConfig{
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: options},
		},
	}}})
	c := newContainer(containerRecord{ID: id}, "uid")
	ctx, cancel := r.bounded(t.Context())
	defer cancel()
	spec := specOf(t)
	return spec, r.withDeclaredVolumes(sb, c, img, labels{})(ctx, nil, nil, spec)
}

// A container gets a directory for each volume that its image declares, with what the image has
// there. Nothing is left of it when the container is removed.
func TestDeclaredVolumes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts need root")
	}
	u := newUnpacked(t)
	r := fakeContainerd{snapshotter: u}.runtime(t)
	ids := []*runtimeapi.IDMapping{{ContainerId: 0, HostId: 100_000, Length: 65536}}
	spec, err := r.declared(t, "c", ids, "/outside", "data", "/none/at/all")
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	for _, m := range spec.Mounts {
		if m.Type == "bind" {
			sources[m.Destination] = m.Source
			if !slices.Equal(m.Options, []string{"rbind", "rprivate", "rw", "ridmap"}) || len(m.UIDMappings) != 1 ||
				m.GIDMappings[0].HostID != 100_000 {
				t.Errorf("a mount is %+v", m)
			}
		}
	}
	if len(sources) != 3 {
		t.Fatalf("the mounts are %v", sources)
	}
	for path, want := range map[string]struct {
		mode     fs.FileMode
		uid, gid uint32
	}{
		sources["/data"]:               {fs.ModeDir | fs.ModeSticky | 0o770, 33, 44},
		sources["/data"] + "/file":     {fs.ModeSetuid | 0o751, 1234, 2345},
		sources["/data"] + "/sub/same": {fs.ModeSetuid | 0o751, 1234, 2345},
		sources["/none/at/all"]:        {fs.ModeDir | 0o755, 0, 0},
		sources["/outside"] + "/own":   {0o644, 0, 0}, // the link led to the image's /etc
		filepath.Dir(sources["/data"]): {fs.ModeDir | 0o700, 0, 0},
		r.declaredDir(""):              {fs.ModeDir | 0o700, 0, 0},
	} {
		info, err := os.Lstat(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if is := info.Sys().(*syscall.Stat_t); info.Mode() != want.mode || is.Uid != want.uid || is.Gid != want.gid {
			t.Errorf("%s is %v of %d:%d, want %+v", path, info.Mode(), is.Uid, is.Gid, want)
		}
	}
	if to, err := os.Readlink(sources["/data"] + "/link"); err != nil || to != "/etc/passwd" {
		t.Errorf("a link leads to %q, %v", to, err)
	}
	if entries, err := os.ReadDir(sources["/outside"]); err != nil || len(entries) != 1 {
		t.Errorf("behind the link are %v, %v", entries, err)
	}
	nothingMounted(t, r, u)
	for range 2 {
		if err := r.removeDeclared(t.Context(), "c"); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(r.declaredDir("c")); !os.IsNotExist(err) {
		t.Errorf("the volumes are left: %v", err)
	}
}

// nothingMounted reports what is left of the snapshot from which volumes are copied.
func nothingMounted(t *testing.T, r *Runtime, u *unpacked) {
	t.Helper()
	if left, err := mounttable.Beneath(r.cfg.StateDir); err != nil || len(left) > 0 {
		t.Errorf("left mounted are %v, %v", left, err)
	}
	if len(u.views) > 0 {
		t.Errorf("left are the snapshots %v", u.views)
	}
}

// A volume that cannot be made fails its container, which takes away what is there of it.
func TestDeclaredVolumeFails(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts need root")
	}
	u := newUnpacked(t)
	r := fakeContainerd{snapshotter: u}.runtime(t)
	if _, err := r.declared(t, "c", nil, "/plain", "/data"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a file as a volume: got %v", err)
	}
	nothingMounted(t, r, u)
	if _, err := r.declared(t, "none", nil, "/proc/x"); err != nil {
		t.Errorf("no volume at all: %v", err)
	}
	if _, err := os.Stat(r.declaredDir("none")); !os.IsNotExist(err) {
		t.Errorf("there is a directory for no volume: %v", err)
	}
}
