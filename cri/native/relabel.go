package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	osuser "os/user"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/cri/internal/classify"
	"github.com/berthd/berth/internal/beneath"
)

// selinuxAttribute is the extended attribute that has a file's SELinux label (selinux(8)).
const selinuxAttribute = "security.selinux"

// system has the directories and files that are never relabelled, because the node would not work
// afterwards. They are those of go-selinux, and where /bin, /lib, /lib64 and /sbin may lead.
var system = []string{
	"/", "/bin", "/boot", "/dev", "/etc", "/etc/passwd", "/etc/pki", "/etc/shadow", "/home", "/lib", "/lib64",
	"/media", "/opt", "/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/lib",
	"/usr/lib64", "/usr/sbin", "/var", "/var/lib", "/var/log",
}

// relabelling is one walk that labels files.
type relabelling struct {
	// attribute is the extended attribute that is set to label.
	attribute, label string
}

// relabel labels the file at path, and all below it if it is a directory. path has no symbolic link
// in it. It follows no link, but labels links themselves, and crosses no mount point, whatever a
// container does to the files meanwhile. The file at path is labelled last, so that a relabelling
// that was cut off can be seen.
func (r relabelling) relabel(ctx context.Context, path string) error {
	path = filepath.Clean(path)
	if isSystem(path) {
		return classify.Invalidf("%s belongs to the system: mount it without a relabelling, or a directory below it", path)
	}
	top, err := beneath.Root("/", 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: "/", Err: err}
	}
	defer func() { _ = unix.Close(top) }()
	root, err := beneath.Open(top, strings.TrimPrefix(path, "/"), unix.O_PATH|unix.O_NOFOLLOW, beneath.NoSymlinks)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(root) }()
	var stat unix.Stat_t
	if err := unix.Fstat(root, &stat); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		tree := &beneath.Tree{
			Visit: func(in beneath.Dir, name string) (bool, error) { return r.child(ctx, in, name, path) },
			TooDeep: func(deep string) error {
				return fmt.Errorf("directories are nested deeper than a path can be long in %s/%s", path, deep)
			},
		}
		if err := tree.Walk(root); err != nil {
			return err
		}
	}
	return r.set(root, path)
}

// isSystem reports whether a path is never relabelled. The homes of who started the agent are not,
// either.
func isSystem(path string) bool {
	if slices.Contains(system, path) || path == filepath.Clean(os.Getenv("HOME")) {
		return true
	}
	name := os.Getenv("SUDO_USER")
	if name == "" {
		return false
	}
	sudoer, err := osuser.Lookup(name)
	return err == nil && path == filepath.Clean(sudoer.HomeDir)
}

// child labels a file in a directory below top. It leaves out what vanishes meanwhile, and what is
// mounted there.
func (r relabelling) child(ctx context.Context, in beneath.Dir, name, top string) (enter bool, err error) {
	if err := context.Cause(ctx); err != nil {
		return false, err
	}
	shown := filepath.Join(top, in.Path, name)
	fd, there, err := in.Open(name)
	if err != nil {
		return false, &fs.PathError{Op: "open", Path: shown, Err: err}
	}
	if !there {
		return false, nil
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return false, &fs.PathError{Op: "stat", Path: shown, Err: err}
	}
	return stat.Mode&unix.S_IFMT == unix.S_IFDIR, r.set(fd, shown)
}

// set labels the file of the O_PATH handle fd, unless it has the label. shown is its path for
// errors.
func (r relabelling) set(fd int, shown string) error {
	// The link in /proc leads to the file that was opened, and no further: to a symbolic link itself.
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	has := make([]byte, len(r.label)+1) // the kernel may end the label with a zero
	n, err := unix.Getxattr(path, r.attribute, has)
	if err == nil && string(bytes.TrimSuffix(has[:n], []byte{0})) == r.label {
		return nil
	}
	for {
		err := unix.Setxattr(path, r.attribute, []byte(r.label), 0)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &fs.PathError{Op: "set the label of", Path: shown, Err: err}
		}
	}
}
