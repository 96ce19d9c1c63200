package volumes

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A bind mount has the options that it is given beside those of its source; the source keeps its
// own.
func TestBindOptions(t *testing.T) {
	needRoot(t)
	dir := mountDir(t)
	for _, name := range []string{"/source", "/target"} {
		must(t, os.Mkdir(dir+name, 0o755))
	}
	mustMount(t, "tmpfs", dir+"/source", "tmpfs", "nosuid", "size=4096")
	flags := func(path string) int64 {
		t.Helper()
		var stat unix.Statfs_t
		must(t, unix.Statfs(path, &stat))
		return stat.Flags & (unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NOEXEC | unix.ST_NODEV)
	}
	mustMount(t, dir+"/source", dir+"/target", "", "bind", "ro", "noexec")
	if got, want := flags(dir+"/target"), int64(unix.ST_RDONLY|unix.ST_NOSUID|unix.ST_NOEXEC); got != want {
		t.Errorf("the mount has flags %#x, want %#x", got, want)
	}
	if got, want := flags(dir+"/source"), int64(unix.ST_NOSUID); got != want {
		t.Errorf("its source has flags %#x, want %#x", got, want)
	}
	if err := os.WriteFile(dir+"/target/x", nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing: %v", err)
	}
}

// Options that a file system does not know are its to refuse.
func TestUnknownOption(t *testing.T) {
	needRoot(t)
	dir := mountDir(t)
	err := KernelMounter{}.MountSensitiveWithoutSystemdWithMountFlags("tmpfs", dir, "tmpfs", []string{"nonsense"},
		nil, nil)
	if !errors.Is(err, unix.EINVAL) {
		t.Errorf("error %v", err)
	}
	if mounts, _ := mountsBeneath(dir); len(mounts) > 0 {
		t.Errorf("mounts %v", mounts)
	}
}
