package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

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

// TestTableThatNobodyReads checks that the node is freed of the subPath of an NFS volume that keeps
// the kernel from writing the mount table to its end, and of no other that is known.
func TestTableThatNobodyReads(t *testing.T) {
	if mounttabletest.Private(t) {
		return
	}
	m, volume := subPathFixture(t, nil)
	var places []string
	for i := range 4 {
		place, err := m.SubPath(t.Context(), "uid-1",
			SubPathMount{Container: "main", Index: 3 - i, Volume: "v", VolumePath: volume, Path: strconv.Itoa(i)})
		must(t, err)
		places = append(places, place)
	}
	for _, guilty := range []int{2, 0} {
		// The kernel's table ends at the guilty one.
		table := func(filter mountinfo.FilterFunc) (known []*mountinfo.Info, err error) {
			all, err := mountinfo.GetMounts(filter)
			for _, info := range all {
				if info.Mountpoint == places[guilty] {
					return known, &os.PathError{Op: "read", Path: "table", Err: unix.ENAMETOOLONG}
				}
				known = append(known, info)
			}
			return known, err
		}
		c := clearing{podsPath: m.podsDir, table: table, unmount: m.unmount, off: m.unmountAlone}
		if err := c.run(t.Context()); err != nil || !slices.Equal(c.uids, []types.UID{"uid-1"}) {
			t.Errorf("%d: unmounted are %v, %v", guilty, c.uids, err)
		}
		if exists(places[guilty]) {
			t.Errorf("a start that is under way finds an empty directory %d", guilty)
		}
	}
	for _, i := range []int{1, 3} {
		if mounted, err := isMountPoint(places[i]); err != nil || !mounted {
			t.Errorf("subPath %d is mounted: %v, %v", i, mounted, err)
		}
	}
	c := clearing{
		podsPath: m.podsDir, unmount: m.unmount, off: m.unmountAlone,
		table: func(mountinfo.FilterFunc) ([]*mountinfo.Info, error) { return nil, unix.ENAMETOOLONG },
	}
	if err := c.run(t.Context()); !errors.Is(err, unix.ENAMETOOLONG) || len(c.uids) != 2 {
		t.Errorf("no subPath is to blame: %v, unmounted are %v", err, c.uids)
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
