package volumes

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// subPathFixture returns a manager with the directories of a pod, and a volume.
func subPathFixture(t *testing.T, mounter Mounter) (m *Manager, volume string) {
	t.Helper()
	m = testManager(mountDir(t), newStore(), mounter)
	must(t, m.EnsureDirs(t.Context(), testPod()))
	volume = t.TempDir()
	must(t, os.Chmod(volume, 0o777|fs.ModeSetgid|fs.ModeSticky))
	return m, volume
}

func TestSubPath(t *testing.T) {
	needRoot(t)
	mounter := &countingMounter{}
	m, volume := subPathFixture(t, mounter)
	write(t, volume+"/dir/in/file", "x")
	must(t, os.Symlink("dir/in", volume+"/link"))
	must(t, os.Symlink("../file", volume+"/dir/in/self"))
	write(t, volume+"/dir/file", "y")
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for i, test := range []struct{ path, want string }{
		{"dir", "dir"},
		{"dir/in/file", "dir/in/file"},
		{"dir//in/./", "dir/in"},
		{"link/file", "dir/in/file"},
		{"link/self", "dir/file"},
		{"new/dir", "new/dir"},
		{"link/new", "dir/in/new"},
		{".", ""},
	} {
		s := SubPathMount{Container: "main", Index: i, Volume: "v", VolumePath: volume, Path: test.path}
		var target string
		for range 2 {
			var err error
			target, err = m.SubPath(t.Context(), "uid-1", s)
			must(t, err)
		}
		if mounter.mounts != i+1 {
			t.Errorf("%q: %d mounts, want %d", test.path, mounter.mounts, i+1)
		}
		if want := filepath.Join(m.PodDir("uid-1"), "volume-subpaths/v/main", string(rune('0'+i))); target != want {
			t.Errorf("%q is at %s, want %s", test.path, target, want)
		}
		have, err := os.Stat(target)
		must(t, err)
		want, err := os.Stat(filepath.Join(volume, test.want))
		must(t, err)
		if !os.SameFile(have, want) {
			t.Errorf("%q is not %s", test.path, test.want)
		}
	}
	for _, dir := range []string{"new", "new/dir", "dir/in/new"} {
		if info, err := os.Stat(filepath.Join(volume, dir)); err != nil || info.Mode() != fs.ModeDir|fs.ModeSetgid|
			fs.ModeSticky|0o777 {
			t.Errorf("mode of %s = %v, %v", dir, info.Mode(), err)
		}
	}
	must(t, m.Remove(t.Context(), "uid-1"))
	if read(t, volume, "dir/in/file") != "x" {
		t.Error("Remove deleted the volume's content")
	}
}

func TestSubPathRefuses(t *testing.T) {
	needRoot(t)
	m, volume := subPathFixture(t, nil)
	outside := t.TempDir()
	write(t, outside+"/precious", "x")
	write(t, volume+"/file", "x")
	must(t, os.Symlink(outside, volume+"/out"))
	must(t, os.Symlink("../"+filepath.Base(outside), volume+"/climb"))
	must(t, os.Symlink("/proc/self/root", volume+"/magic"))
	must(t, os.Symlink("nowhere", volume+"/dangling"))
	must(t, os.Symlink("loop", volume+"/loop"))
	must(t, os.Mkdir(volume+"/in", 0o755))
	must(t, os.Symlink(outside, volume+"/in/deep"))
	const hidden = `failed to prepare subPath for volumeMount "v" of container "main"`
	const create = `failed to create subPath directory for volumeMount "v" of container "main"`
	for path, want := range map[string]string{
		"/abs":         "error SubPath `/abs` must not be an absolute path",
		"../x":         "unable to provision SubPath `../x`: must not contain '..'",
		"a/../b":       "unable to provision SubPath `a/../b`: must not contain '..'",
		"":             "unable to provision SubPath ``: must not contain '..'",
		"out":          create,
		"out/precious": create,
		"out/new":      create,
		"climb/new":    create,
		"magic":        create,
		"dangling":     create,
		"dangling/new": create,
		"loop":         create,
		"file/below":   create,
	} {
		_, err := m.SubPath(t.Context(), "uid-1", SubPathMount{
			Container:  "main",
			Volume:     "v",
			VolumePath: volume,
			Path:       path,
		})
		if _, ok := errors.AsType[*SubPathError](err); !ok || err.Error() != want {
			t.Errorf("%q: error = %v, want %s", path, err, want)
		}
	}
	for path, want := range map[string]string{
		"out":          `the path leads out of its volume through the link "out"`,
		"climb/new":    `the path leads out of its volume through the link "climb"`,
		"in/deep/x":    `the path leads out of its volume through the link "in/deep"`,
		"magic":        `the path leads out of its volume through the link "magic"`,
		"loop":         `the link "loop" cannot be followed: it leads in a circle or into /proc`,
		"file/below":   "",
		"dangling/new": "",
	} {
		_, err := m.SubPath(t.Context(), "uid-1", SubPathMount{
			Container:  "main",
			Volume:     "v",
			VolumePath: volume,
			Path:       path,
		})
		if why, ok := errors.AsType[*SubPathError](err); !ok || why.Detail != want {
			t.Errorf("%q: %+v, want detail %q", path, why, want)
		}
	}
	_, err := m.SubPath(t.Context(), "uid-1", SubPathMount{
		Container:  "main",
		Volume:     "v",
		VolumePath: volume + "/none",
		Path:       "x",
	})
	if err == nil || err.Error() != hidden {
		t.Errorf("without a volume: %v", err)
	}
	_, err = m.SubPath(t.Context(), "uid-1", SubPathMount{
		Container:  "../main",
		Volume:     "v",
		VolumePath: volume,
		Path:       "x",
	})
	if err == nil {
		t.Error("a container name that climbs was accepted")
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Errorf("outside holds %v", entries)
	}
	if left, _ := mountsBeneath(m.PodDir("uid-1")); len(left) > 0 {
		t.Errorf("mounts are left: %v", left)
	}
}

func TestSubPathFollowsConfigMap(t *testing.T) {
	needRoot(t)
	root := mountDir(t)
	objects := newStore()
	objects.setConfigMap("cm", map[string]string{"key": "1"})
	mounter := &countingMounter{}
	m := testManager(root, objects, mounter)
	pod := testPod(configMapVolume("v", "cm"))
	must(t, m.EnsureDirs(t.Context(), pod))
	s := SubPathMount{Container: "main", Volume: "v", Path: "key"}
	for _, value := range []string{"1", "2", "3"} {
		objects.setConfigMap("cm", map[string]string{"key": value})
		mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
		must(t, err)
		s.VolumePath = mounts["v"].HostPath
		target, err := m.SubPath(t.Context(), pod.UID, s)
		must(t, err)
		if got := read(t, target); got != value {
			t.Errorf("subPath holds %q, want %q", got, value)
		}
	}
	if mounter.mounts != 3 || mounter.unmounts != 2 {
		t.Errorf("%d mounts and %d unmounts, want 3 and 2", mounter.mounts, mounter.unmounts)
	}
	must(t, m.Remove(t.Context(), pod.UID))
}

// An optional ConfigMap that comes late takes the place of the directory that the subPath made.
func TestSubPathBeforeConfigMap(t *testing.T) {
	needRoot(t)
	objects := newStore()
	m := testManager(mountDir(t), objects, nil)
	volume := configMapVolume("v", "cm")
	yes := true
	volume.ConfigMap.Optional = &yes
	pod := testPod(volume)
	must(t, m.EnsureDirs(t.Context(), pod))
	s := SubPathMount{Container: "main", Volume: "v", Path: "key"}
	for _, wantDir := range []bool{true, false} {
		mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
		must(t, err)
		s.VolumePath = mounts["v"].HostPath
		target, err := m.SubPath(t.Context(), pod.UID, s)
		must(t, err)
		if info, err := os.Stat(target); err != nil || info.IsDir() != wantDir {
			t.Errorf("subPath is a directory: %v, want %v (%v)", info.IsDir(), wantDir, err)
		}
		objects.setConfigMap("cm", map[string]string{"key": "1"})
	}
}

func TestSubPathMountFails(t *testing.T) {
	m := testManager(mountDir(t), newStore(), failingMounter{})
	must(t, m.EnsureDirs(t.Context(), testPod()))
	volume := t.TempDir()
	_, err := m.SubPath(t.Context(), "uid-1", SubPathMount{
		Container:  "main",
		Volume:     "v",
		VolumePath: volume,
		Path:       "d",
	})
	if !errors.Is(err, unix.EPERM) || strings.Contains(err.Error(), volume) {
		t.Errorf("error = %v: it must keep its cause, and hide the host's paths", err)
	}
	if exists(m.PodDir("uid-1") + "/volume-subpaths/v/main/0") {
		t.Error("the place of the mount is left")
	}
	must(t, m.Remove(t.Context(), "uid-1"))
}
