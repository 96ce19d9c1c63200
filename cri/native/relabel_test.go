package native

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// trusted sets an attribute that takes no SELinux. Links can have it, too.
var trusted = relabelling{attribute: "trusted.berth", label: "system_u:object_r:container_file_t:s0:c1,c2"}

// labelOf returns the label of a file, or of a symbolic link itself.
func labelOf(t *testing.T, path string) string {
	t.Helper()
	label := make([]byte, 100)
	n, err := unix.Lgetxattr(path, trusted.attribute, label)
	if errors.Is(err, unix.ENODATA) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(label[:n])
}

// newVolume makes a directory with files, and one beside it that no relabelling may reach: links
// lead there, and it is mounted in the directory, too.
func newVolume(t *testing.T) (volume, outside string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("trusted attributes need root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mounting is not allowed: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	volume, outside = filepath.Join(dir, "volume"), filepath.Join(dir, "outside")
	mounted := filepath.Join(volume, "mounted")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(volume, "dir", "deep"), 0o755),
		os.WriteFile(filepath.Join(volume, "dir", "deep", "file"), nil, 0o600),
		os.MkdirAll(filepath.Join(outside, "deep"), 0o755),
		os.WriteFile(filepath.Join(outside, "deep", "file"), nil, 0o600),
		os.Symlink(outside, filepath.Join(volume, "link")),
		os.Symlink(filepath.Join(outside, "deep", "file"), filepath.Join(volume, "dir", "link")),
		unix.Mkfifo(filepath.Join(volume, "fifo"), 0o600),
		os.Mkdir(mounted, 0o755),
		unix.Mount(outside, mounted, "", unix.MS_BIND, ""),
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mounted, unix.MNT_DETACH) })
	return volume, outside
}

// labelled returns the paths at a path and below it that have the label, but for those of mounts.
func labelled(t *testing.T, path string) (with, without []string) {
	t.Helper()
	if err := filepath.WalkDir(path, func(p string, _ fs.DirEntry, err error) error {
		switch name := strings.TrimPrefix(p, path); {
		case err != nil:
			return err
		case labelOf(t, p) == trusted.label:
			with = append(with, name)
		default:
			without = append(without, name)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return with, without
}

// All below a volume gets the label, links themselves among it. Where links lead, and what is
// mounted there, does not.
func TestRelabel(t *testing.T) {
	volume, outside := newVolume(t)
	if err := unix.Setxattr(filepath.Join(volume, "dir"), trusted.attribute, []byte("another"), 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := trusted.relabel(t.Context(), volume); err != nil {
			t.Fatal(err)
		}
	}
	_, without := labelled(t, volume)
	if want := []string{"/mounted", "/mounted/deep", "/mounted/deep/file"}; !slices.Equal(without, want) {
		t.Errorf("without the label are %q, want %q", without, want)
	}
	if with, _ := labelled(t, outside); with != nil {
		t.Errorf("outside of the volume these got the label: %q", with)
	}
	if err := trusted.relabel(t.Context(), filepath.Join(outside, "deep", "file")); err != nil {
		t.Fatal(err)
	}
	if with, _ := labelled(t, outside); !slices.Equal(with, []string{"/deep/file"}) {
		t.Errorf("of one file, these got the label: %q", with)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := trusted.relabel(ended, volume); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that has ended: %v", err)
	}
}

// What has the label already is not written: the volume may be read-only.
func TestRelabelOfWhatIsLabelled(t *testing.T) {
	volume, _ := newVolume(t)
	if err := trusted.relabel(t.Context(), volume); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", filepath.Dir(volume), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := trusted.relabel(t.Context(), volume); err != nil {
		t.Errorf("the same label: %v", err)
	}
	other := relabelling{attribute: trusted.attribute, label: "other"}
	if err := other.relabel(t.Context(), volume); !errors.Is(err, unix.EROFS) {
		t.Errorf("another label: %v", err)
	}
}

// What has become a link since the path's links were resolved is not followed.
func TestRelabelFollowsNoLinksInThePath(t *testing.T) {
	volume, outside := newVolume(t)
	if err := trusted.relabel(t.Context(), filepath.Join(volume, "link", "deep")); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a directory beyond a link: %v", err)
	}
	if err := trusted.relabel(t.Context(), filepath.Join(volume, "link")); err != nil {
		t.Errorf("a link itself: %v", err)
	}
	if with, _ := labelled(t, outside); with != nil {
		t.Errorf("outside of the volume these got the label: %q", with)
	}
}

// A container exchanges a directory for a link all the time.
func TestRelabelDuringSwaps(t *testing.T) {
	volume, outside := newVolume(t)
	if err := unix.Unmount(filepath.Join(volume, "mounted"), 0); err != nil {
		t.Fatal(err) // only the links are to lead outside
	}
	dir, link := filepath.Join(volume, "dir"), filepath.Join(volume, "link")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for i := range 3000 {
		again := relabelling{attribute: trusted.attribute, label: trusted.label[:len(trusted.label)-i%2]}
		if err := again.relabel(t.Context(), volume); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	<-done
	for _, path := range []string{"", "deep", "deep/file"} {
		if got := labelOf(t, filepath.Join(outside, path)); got != "" {
			t.Errorf("outside of the volume, %q has the label %s", path, got)
		}
	}
}

// Directories of the system keep their labels, however the path is written.
func TestRelabelRefusesTheSystem(t *testing.T) {
	t.Setenv("HOME", "/home/of/root/")
	// no label could be set: were one not refused, nothing would happen
	never := relabelling{attribute: "none", label: "none"}
	for _, path := range []string{"/", "/usr", "/usr/", "/usr/bin", "/etc", "/etc/shadow", "/var/lib/", "/home/of/root"} {
		if err := never.relabel(t.Context(), path); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := never.relabel(t.Context(), t.TempDir()); !errors.Is(err, unix.ENOTSUP) {
		t.Errorf("another directory, with an attribute that does not exist: %v", err)
	}
}
