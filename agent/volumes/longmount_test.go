package volumes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/mounttable"
	"github.com/berthd/berth/internal/mounttable/mounttabletest"
)

// TestContainersCannotHideTheMountTable checks that a container that renames the directory of its
// subPath, so that its path is longer than any may be, keeps no pod from being removed.
func TestContainersCannotHideTheMountTable(t *testing.T) {
	if mounttabletest.Private(t) {
		return
	}
	m, volume := subPathFixture(t, nil)
	victim := testPod()
	victim.UID = "uid-2"
	must(t, m.EnsureDirs(t.Context(), victim))
	mustMount(t, "tmpfs", m.PodDir("uid-2"), "tmpfs")
	s := SubPathMount{Container: "main", Volume: "v", VolumePath: volume, Path: "short"}
	_, err := m.SubPath(t.Context(), "uid-1", s)
	must(t, err)
	deep := mounttabletest.Deep(t, volume)
	must(t, unix.Renameat(unix.AT_FDCWD, filepath.Join(volume, "short"), deep, "long"))

	if mounted, err := inMountTable(m.PodDir("uid-2")); err != nil || !mounted {
		t.Errorf("inMountTable() = %v, %v", mounted, err)
	}
	if _, err := mountOf(volume); err != nil {
		t.Errorf("mountOf() = %v", err)
	}
	for _, uid := range []types.UID{"uid-2", "uid-1"} {
		must(t, m.Remove(t.Context(), uid))
		if exists(m.PodDir(uid)) {
			t.Errorf("%s is still there", uid)
		}
	}
}

// TestMountTableIsCleared checks that runtimes can read the node's mount table again after a
// container has moved the directory of its subPath.
func TestMountTableIsCleared(t *testing.T) {
	if mounttabletest.Private(t) {
		return
	}
	m, volume := subPathFixture(t, nil)
	var places []string
	for i, path := range []string{"short", "stays"} {
		place, err := m.SubPath(t.Context(), "uid-1",
			SubPathMount{Container: "main", Index: i, Volume: "v", VolumePath: volume, Path: path})
		must(t, err)
		places = append(places, place)
	}
	if uids, err := m.ClearMountTable(t.Context()); err != nil || len(uids) != 0 {
		t.Errorf("nothing to do: %v, %v", uids, err)
	}
	must(t, unix.Renameat(unix.AT_FDCWD, filepath.Join(volume, "short"), mounttabletest.Deep(t, volume), "long"))
	if _, err := mountinfo.GetMounts(nil); err == nil {
		t.Error("the mount table has no line that is too long for runtimes")
	}
	uids, err := m.ClearMountTable(t.Context())
	if err != nil || !slices.Equal(uids, []types.UID{"uid-1"}) {
		t.Errorf("ClearMountTable() = %v, %v", uids, err)
	}
	if _, err := mountinfo.GetMounts(nil); err != nil {
		t.Errorf("a runtime reads the mount table: %v", err)
	}
	if exists(places[0]) {
		t.Error("a start that is under way finds an empty directory")
	}
	if mounted, err := isMountPoint(places[1]); err != nil || !mounted {
		t.Errorf("the other subPath is mounted: %v, %v", mounted, err)
	}
}

// endsAt is a mount table that the kernel cannot write further than to some mounts.
func endsAt(targets ...string) func() ([]*mountinfo.Info, error) {
	return func() (written []*mountinfo.Info, err error) {
		all, err := mounttable.Mounts()
		for _, info := range all {
			if slices.Contains(targets, info.Mountpoint) {
				return written, &os.PathError{Op: "read", Path: "table", Err: unix.ENAMETOOLONG}
			}
			written = append(written, info)
		}
		return written, err
	}
}

// TestTableThatNobodyReads checks that the node is freed of the mounts that keep the kernel from
// writing the mount table to its end, whatever of the pods they are, and of no others.
func TestTableThatNobodyReads(t *testing.T) {
	if mounttabletest.Private(t) {
		return
	}
	m, volume := subPathFixture(t, nil)
	var places []string
	for i := range 5 {
		place, err := m.SubPath(t.Context(), "uid-1",
			SubPathMount{Container: "main", Index: 4 - i, Volume: "v", VolumePath: volume, Path: strconv.Itoa(i)})
		must(t, err)
		places = append(places, place)
	}
	nfs := filepath.Join(m.PodDir("uid-1"), "volumes", pluginNFS, "v")
	must(t, os.MkdirAll(nfs, 0o700))
	mustMount(t, "none", nfs, "tmpfs")
	places = append(places, nfs)
	// Something is mounted in one: it can only be detached.
	must(t, os.Mkdir(filepath.Join(places[4], "in"), 0o700))
	mustMount(t, "none", filepath.Join(places[4], "in"), "tmpfs")

	for _, guilty := range [][]string{{nfs}, {places[0], places[4]}, {places[2]}} {
		c := clearing{m: m, podsPath: m.podsDir, table: endsAt(guilty...)}
		if err := c.run(t.Context()); err != nil || len(c.uids) != len(guilty) || c.uids[0] != "uid-1" {
			t.Errorf("%q: unmounted are %v, %v", guilty, c.uids, err)
		}
		for _, place := range guilty {
			if place != nfs && exists(place) {
				t.Errorf("a start that is under way finds the empty directory %s", place)
			}
		}
	}
	for i, stays := range []bool{1: true, 3: true, 5: false} {
		if mounted, err := isMountPoint(places[i]); err == nil && mounted != stays {
			t.Errorf("%s is mounted: %v", places[i], mounted)
		}
	}
	for name, table := range map[string]func() ([]*mountinfo.Info, error){
		"the mount is none of a pod": endsAt("/proc"),
		"its directory is moved back and forth": func() ([]*mountinfo.Info, error) {
			if rand.IntN(2) == 0 {
				return nil, unix.ENAMETOOLONG
			}
			return mounttable.Mounts()
		},
	} {
		for range 100 {
			c := clearing{m: m, podsPath: m.podsDir, table: table}
			if err := c.run(t.Context()); err != nil && !errors.Is(err, unix.ENAMETOOLONG) || len(c.uids) != 0 {
				t.Fatalf("%s: %v, unmounted are %v", name, err, c.uids)
			}
		}
	}
	for _, i := range []int{1, 3} {
		if mounted, err := isMountPoint(places[i]); err != nil || !mounted {
			t.Errorf("%s is mounted: %v, %v", places[i], mounted, err)
		}
	}
}

// TestSubPathTooDeep checks that links inside of a volume lead to no directory that lies too deep
// for the mount table.
func TestSubPathTooDeep(t *testing.T) {
	if mounttabletest.Private(t) {
		return
	}
	m, volume := subPathFixture(t, nil)
	deep := mounttabletest.Deep(t, volume)
	// Each link leads fifteen directories deeper than the one before.
	at, link := volume, ""
	down := strings.TrimSuffix(strings.Repeat(strings.Repeat("d", unix.NAME_MAX)+"/", 15), "/")
	for i := range 20 {
		link = fmt.Sprintf("l%d", i)
		target := down
		if i > 0 {
			target = fmt.Sprintf("l%d/%s", i-1, down)
		}
		must(t, os.Symlink(target, filepath.Join(at, link)))
	}
	must(t, unix.Mkdirat(deep, "in", 0o777))
	_, err := m.SubPath(t.Context(), "uid-1",
		SubPathMount{Container: "main", Volume: "v", VolumePath: volume, Path: link + "/in"})
	if !errors.Is(err, errTooDeep) {
		t.Errorf("SubPath() = %v", err)
	}
	if _, err := mountinfo.GetMounts(nil); err != nil {
		t.Errorf("a runtime reads the mount table: %v", err)
	}
}

// A path is too long if the kernel's name for it on the server is, however short it is on the node.
func TestTooLongOnTheServer(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, test := range []struct {
		fsType, source, path string
		want                 bool
	}{
		{"nfs4", "s:/x", "/m/" + long(4000), false},
		{"nfs4", "s:/" + long(1000), "/m/" + long(3000), false},
		{"nfs4", "s:/" + long(1000), "/m/" + long(3091), false},
		{"nfs4", "s:/" + long(1000), "/m/" + long(3092), true},
		{"nfs", "s:/" + long(1000), "/m/" + long(3200), true},
		{"tmpfs", long(1000), "/m/" + long(3200), false},
	} {
		mount := &mountinfo.Info{FSType: test.fsType, Source: test.source, Mountpoint: "/m"}
		if got := isTooLongOn(mount, test.path); got != test.want {
			t.Errorf("%d bytes of %s on %d: %v", len(test.path), test.fsType, len(test.source), got)
		}
	}
}
