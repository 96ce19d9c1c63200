package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/beneath"
)

// Package beneath reads so many names of a directory at once, and names with this prefix what lies
// too deep.
const (
	batch       = 512
	movedPrefix = ".berth-deleting-"
)

func TestRemoveNothing(t *testing.T) {
	root := t.TempDir()
	m := testManager(root, newStore(), nil)
	must(t, m.Remove(t.Context(), "uid-1")) // no directory of pods
	must(t, os.MkdirAll(filepath.Join(root, "pods"), 0o750))
	must(t, m.Remove(t.Context(), "uid-1"))
	if uids, err := m.List(t.Context()); err != nil || len(uids) != 0 {
		t.Errorf("List() = %v, %v", uids, err)
	}
}

func TestRemoveFollowsNoLinks(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	write(t, outside+"/dir/precious", "x")
	pods := filepath.Join(root, "pods")
	m := testManager(root, newStore(), nil)
	write(t, pods+"/uid-1/volumes/v/file", "y")
	for name, target := range map[string]string{
		"dir":  outside,
		"link": outside + "/dir/precious",
		"loop": ".",
		"up":   "../../../..",
		"gone": "nowhere",
	} {
		must(t, os.Symlink(target, pods+"/uid-1/volumes/v/"+name))
	}
	must(t, os.Symlink(outside, pods+"/uid-2"))
	must(t, os.Chmod(pods+"/uid-1/volumes/v", 0))
	for _, uid := range []types.UID{"uid-1", "uid-2"} {
		must(t, m.Remove(t.Context(), uid))
		if exists(filepath.Join(pods, string(uid))) {
			t.Errorf("%s is still there", uid)
		}
	}
	if got := read(t, outside, "dir/precious"); got != "x" {
		t.Errorf("file outside = %q", got)
	}
}

func TestRemoveDeepAndWide(t *testing.T) {
	root := t.TempDir()
	m := testManager(root, newStore(), nil)
	pod := filepath.Join(root, "pods/uid-1")
	must(t, os.MkdirAll(pod, 0o750))
	// Deeper than files may be open.
	dir, err := unix.Open(pod, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range 1000 {
		must(t, unix.Mkdirat(dir, "d", 0o700))
		must(t, unix.Symlinkat("/", dir, "l"))
		next, err := unix.Openat(dir, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		must(t, unix.Close(dir))
		dir = next
	}
	must(t, unix.Close(dir))
	for i := range batch + 100 {
		write(t, filepath.Join(pod, "wide", strconv.Itoa(i)), "")
	}
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	few := limit
	few.Cur = 256
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	must(t, m.Remove(t.Context(), "uid-1"))
	if exists(pod) {
		t.Error("the directory is still there")
	}
}

func TestRemoveUnmountsForeignMounts(t *testing.T) {
	needRoot(t)
	root, precious := mountDir(t), mountDir(t)
	write(t, precious+"/dir/file", "x")
	write(t, precious+"/single", "x")
	pod := filepath.Join(root, "pods/uid-1")
	for _, dir := range []string{"volumes/k/v", "volumes/k/w", "deep/er"} {
		must(t, os.MkdirAll(filepath.Join(pod, dir), 0o755))
	}
	write(t, pod+"/file", "")
	mustMount(t, precious, pod+"/volumes/k/v", "", "bind")
	// inside of another, and seen in precious, too, if mounts are shared
	mustMount(t, "tmpfs", pod+"/volumes/k/v/dir", "tmpfs")
	mustMount(t, precious, pod+"/volumes/k/w", "", "bind")
	mustMount(t, precious, pod+"/volumes/k/w", "", "bind") // twice on one place
	mustMount(t, precious+"/single", pod+"/file", "", "bind")
	mustMount(t, "tmpfs", pod+"/deep/er", "tmpfs")
	mustMount(t, "tmpfs", pod+"/deep", "tmpfs") // hides another
	must(t, testManager(root, newStore(), nil).Remove(t.Context(), "uid-1"))
	if left, _ := mountsBeneath(pod); len(left) > 0 || exists(pod) {
		t.Errorf("Remove left mounts %v", left)
	}
	if read(t, precious, "dir/file") != "x" || read(t, precious, "single") != "x" {
		t.Error("Remove deleted what was mounted")
	}
}

func TestRemoveDetachesBusyMounts(t *testing.T) {
	needRoot(t)
	root := mountDir(t)
	pod := filepath.Join(root, "pods/uid-1")
	must(t, os.MkdirAll(pod+"/v", 0o755))
	mustMount(t, "tmpfs", pod+"/v", "tmpfs")
	write(t, pod+"/v/open", "x")
	busy, err := os.Open(pod + "/v/open")
	must(t, err)
	defer busy.Close()
	must(t, testManager(root, newStore(), nil).Remove(t.Context(), "uid-1"))
	if exists(pod) {
		t.Error("the directory is still there")
	}
}

func TestRemoveStopsAtMounts(t *testing.T) {
	needRoot(t)
	root, precious := mountDir(t), mountDir(t)
	write(t, precious+"/file", "x")
	pod := filepath.Join(root, "pods/uid-1")
	must(t, os.MkdirAll(pod+"/a/mnt", 0o755))
	write(t, pod+"/other", "y")
	mustMount(t, precious, pod+"/a/mnt", "", "bind")

	m := testManager(root, newStore(), stubbornMounter{})
	err := m.Remove(t.Context(), "uid-1")
	if !errors.Is(err, ErrMounted) || !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), pod+"/a/mnt") {
		t.Errorf("error = %v, want still mounted", err)
	}
	if read(t, pod, "other") != "y" || read(t, precious, "file") != "x" {
		t.Error("something was deleted although a mount is left")
	}

	// The deletion alone stops there, too: something may be mounted after the mount table was read.
	dir, err := os.Open(filepath.Join(root, "pods"))
	must(t, err)
	defer dir.Close()
	if err := beneath.Remove(t.Context(), int(dir.Fd()), "uid-1"); !errors.Is(err, ErrMounted) {
		t.Errorf("error = %v, want still mounted", err)
	}
	if read(t, precious, "file") != "x" {
		t.Error("the deletion crossed a mount of the same file system")
	}
	must(t, unix.Unmount(pod+"/a/mnt", 0))

	must(t, os.MkdirAll(pod+"/b", 0o755))
	write(t, pod+"/b/mnt", "")
	mustMount(t, precious+"/file", pod+"/b/mnt", "", "bind")
	if err := beneath.Remove(t.Context(), int(dir.Fd()), "uid-1"); !errors.Is(err, ErrMounted) {
		t.Errorf("error = %v, want still mounted", err)
	}
	if read(t, precious, "file") != "x" {
		t.Error("the deletion went through a mounted file")
	}
	must(t, testManager(root, newStore(), nil).Remove(t.Context(), "uid-1"))
}

func TestRemoveThroughLinkedRoot(t *testing.T) {
	needRoot(t)
	real := mountDir(t)
	link := filepath.Join(t.TempDir(), "root")
	must(t, os.Symlink(real, link))
	pod, objects := allVolumes(real)
	m := testManager(link, objects, nil)
	must(t, m.EnsureDirs(t.Context(), pod))
	_, err := m.Ensure(t.Context(), pod, Dynamic{})
	must(t, err)
	must(t, m.Remove(t.Context(), pod.UID))
	if left, _ := mountsBeneath(real); len(left) > 0 || exists(filepath.Join(real, "pods/uid-1")) {
		t.Errorf("Remove left mounts %v", left)
	}
}

func TestRemoveCancelled(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/pods/uid-1/file", "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := testManager(root, newStore(), nil).Remove(ctx, "uid-1"); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
}

// An agent that is killed while it removes a pod goes on later; here the first one gets only a part
// of it done.
func TestRemoveGoesOn(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a", "b", "c/d"} {
		write(t, filepath.Join(root, "pods/uid-1", movedPrefix+"1", name), "x")
	}
	write(t, root+"/pods/uid-1/containers/main/0000abcd", "x")
	must(t, testManager(root, newStore(), nil).Remove(t.Context(), "uid-1"))
	if exists(root + "/pods/uid-1") {
		t.Error("the directory is still there")
	}
}

func TestRemoveDir(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	write(t, outside+"/precious", "x")
	write(t, root+"/logs/pod/app/0.log", "y")
	must(t, os.Symlink(outside, root+"/logs/pod/link"))
	for range 2 { // what is gone is removed
		must(t, RemoveDir(t.Context(), root+"/logs/pod"))
	}
	must(t, RemoveDir(t.Context(), root+"/nowhere/pod"))
	if exists(root+"/logs/pod") || !exists(root+"/logs") || !exists(outside+"/precious") {
		t.Error("removed too little or too much")
	}
}
