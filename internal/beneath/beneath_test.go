package beneath

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

type opener func(dir int, path string, flags int, resolve uint64) (int, error)

// openers are both ways to open. Without openat2, as on a kernel before 5.6, the walk alone is
// tested.
func openers(t *testing.T, root int) map[string]opener {
	t.Helper()
	out := map[string]opener{"walk": walk, "Open": Open}
	fd, err := openat2(root, ".", unix.O_PATH, 0)
	if errors.Is(err, unix.ENOSYS) {
		t.Log("the kernel has no openat2")
		return out
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	out["openat2"] = openat2
	return out
}

// tree makes a directory with files and links, and opens it. Beside it lies a file that nobody may
// reach.
func tree(t *testing.T) (path string, fd int) {
	t.Helper()
	top := t.TempDir()
	path = filepath.Join(top, "root")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(path, "dir", "deep"), 0o755),
		os.WriteFile(filepath.Join(top, "outside"), nil, 0o600),
		os.WriteFile(filepath.Join(path, "dir", "file"), nil, 0o600),
		os.Symlink("dir", filepath.Join(path, "inside")),
		os.Symlink("file", filepath.Join(path, "dir", "link")),
		os.Symlink("../outside", filepath.Join(path, "out")),
		os.Symlink("..", filepath.Join(path, "up")),
		os.Symlink("/etc", filepath.Join(path, "absolute")),
		os.Symlink("circle", filepath.Join(path, "circle")),
	); err != nil {
		t.Fatal(err)
	}
	fd, err := Root(path, unix.O_NOFOLLOW)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return path, fd
}

func TestRoot(t *testing.T) {
	path, _ := tree(t)
	if fd, err := Root(filepath.Join(path, "inside"), 0); err != nil {
		t.Errorf("a link to a directory: %v", err)
	} else {
		_ = unix.Close(fd)
	}
	if _, err := Root(filepath.Join(path, "inside"), unix.O_NOFOLLOW); err == nil {
		t.Error("a link was followed")
	}
	if _, err := Root(filepath.Join(path, "dir", "file"), 0); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a file: %v", err)
	}
}

// Both ways give the same answer, but for links that stay beneath the directory and for "..".
func TestOpen(t *testing.T) {
	const directory = unix.O_RDONLY | unix.O_DIRECTORY
	_, root := tree(t)
	for _, c := range []struct {
		path    string
		flags   int
		resolve uint64
		// want is the error of both ways; walk is another one of the walk.
		want, walk error
	}{
		{path: "dir/file"},
		{path: "dir/file", resolve: NoSymlinks | NoXDev},
		{path: "dir/deep", flags: directory},
		{path: "dir//./deep/", flags: directory, resolve: NoXDev},
		{path: ".", flags: directory, resolve: NoSymlinks},
		{path: "./", flags: unix.O_PATH},
		{path: "", want: unix.ENOENT},
		{path: "none", want: unix.ENOENT},
		{path: "none/file", want: unix.ENOENT},
		{path: "dir/file/x", want: unix.ENOTDIR},
		{path: "dir/file/", want: unix.ENOTDIR},
		{path: "dir/file", flags: directory, want: unix.ENOTDIR},

		{path: "..", want: unix.EXDEV},
		{path: "../outside", want: unix.EXDEV},
		{path: "dir/../../outside", want: unix.EXDEV},
		{path: "dir/../dir/file", walk: unix.EXDEV},
		{path: "/etc/passwd", want: unix.EXDEV},
		{path: "/", flags: unix.O_PATH, want: unix.EXDEV},

		{path: "out", want: unix.EXDEV, walk: ErrNoFollow},
		{path: "out", flags: unix.O_PATH, want: unix.EXDEV, walk: ErrNoFollow},
		{path: "up/outside", want: unix.EXDEV, walk: ErrNoFollow},
		{path: "absolute/passwd", want: unix.EXDEV, walk: ErrNoFollow},
		{path: "absolute", flags: directory, want: unix.EXDEV, walk: ErrNoFollow},
		{path: "circle", want: unix.ELOOP, walk: ErrNoFollow},

		{path: "inside/file", walk: ErrNoFollow},
		{path: "inside", flags: directory, walk: ErrNoFollow},
		{path: "inside", flags: unix.O_PATH | unix.O_DIRECTORY, walk: ErrNoFollow},
		{path: "inside/", flags: unix.O_PATH | unix.O_NOFOLLOW, walk: ErrNoFollow},
		{path: "dir/link", walk: ErrNoFollow},
		{path: "dir/link", flags: unix.O_PATH, walk: ErrNoFollow},

		{path: "inside/file", resolve: NoSymlinks, want: unix.ELOOP},
		{path: "up/outside", resolve: NoSymlinks, want: unix.ELOOP},
		{path: "out", resolve: NoSymlinks, want: unix.ELOOP},
		{path: "dir/link", resolve: NoSymlinks, want: unix.ELOOP},
		{path: "dir/link", flags: unix.O_PATH, resolve: NoSymlinks, want: unix.ELOOP},
		{path: "inside", flags: directory, resolve: NoSymlinks, want: unix.ELOOP},
		// The callers that delete and that change owners see a link itself.
		{path: "inside", flags: directory | unix.O_NOFOLLOW, resolve: NoSymlinks, want: unix.ENOTDIR},
		{path: "dir/link", flags: unix.O_NOFOLLOW, resolve: NoSymlinks, want: unix.ELOOP},
	} {
		for name, open := range openers(t, root) {
			want := c.want
			if name == "walk" && c.walk != nil {
				want = c.walk
			}
			fd, err := open(root, c.path, c.flags, c.resolve)
			if err == nil {
				_ = unix.Close(fd)
			}
			if !errors.Is(err, want) {
				t.Errorf("%s of %q, flags %#x, resolve %#x: %v, want %v", name, c.path, c.flags, c.resolve, err, want)
			}
		}
	}
}

func TestALinkItself(t *testing.T) {
	_, root := tree(t)
	for name, open := range openers(t, root) {
		fd, err := open(root, "out", unix.O_PATH|unix.O_NOFOLLOW, NoSymlinks|NoXDev)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFLNK {
			t.Errorf("%s: mode %#o, %v", name, stat.Mode, err)
		}
		_ = unix.Close(fd)
	}
}

func TestWalkRefusesWhatItDoesNotKnow(t *testing.T) {
	_, root := tree(t)
	if _, err := walk(root, "dir", unix.O_PATH, unix.RESOLVE_IN_ROOT); !errors.Is(err, unix.EINVAL) {
		t.Errorf("error %v", err)
	}
}

// A bind mount of the same file system is another mount, too, although its device is the same.
func TestMountPoints(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	path, root := tree(t)
	for mounted, mount := range map[string]func(string) error{
		"tmpfs": func(on string) error { return unix.Mount("tmpfs", on, "tmpfs", 0, "size=4096") },
		"bind":  func(on string) error { return unix.Mount(filepath.Join(path, "dir"), on, "", unix.MS_BIND, "") },
	} {
		on := filepath.Join(path, mounted)
		if err := os.Mkdir(on, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := mount(on); err != nil {
			t.Skipf("mounting is not allowed: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(on, unix.MNT_DETACH) })
		if err := os.MkdirAll(filepath.Join(on, "deep"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, open := range openers(t, root) {
			for _, p := range []string{mounted, mounted + "/deep"} {
				for _, flags := range []int{
					unix.O_PATH | unix.O_NOFOLLOW, unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW,
				} {
					if _, err := open(root, p, flags, NoXDev|NoSymlinks); !errors.Is(err, unix.EXDEV) {
						t.Errorf("%s of %s, flags %#x: %v", name, p, flags, err)
					}
					fd, err := open(root, p, flags, NoSymlinks)
					if err != nil {
						t.Errorf("%s of %s, flags %#x, where mounts may be crossed: %v", name, p, flags, err)
						continue
					}
					_ = unix.Close(fd)
				}
			}
		}
	}
}

// Whatever a container renames while the walk runs, the result is the file beneath the directory,
// or an error.
func TestWalkDuringRenames(t *testing.T) {
	path, root := tree(t)
	in := func(name string) string { return filepath.Join(path, name) }
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(in("dir"), in("aside"))
			_ = os.Rename(in("up"), in("dir"))
			_ = os.Rename(in("dir"), in("up"))
			_ = os.Rename(in("aside"), in("dir"))
		}
	}()
	defer func() {
		close(stop)
		<-done
	}()
	for range 20_000 {
		fd, err := walk(root, "dir/outside", unix.O_PATH, 0)
		if err == nil {
			_ = unix.Close(fd)
			t.Fatal("the walk left its directory")
		}
	}
}
