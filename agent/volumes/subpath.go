package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/tasks"
	"github.com/berthd/berth/internal/beneath"
	"github.com/berthd/berth/internal/thread"
)

// subPathsDir is the directory, beneath the pod's own, in which subPaths are mounted.
const subPathsDir = "volume-subpaths"

// SubPathMount is a container's mount of a part of a volume.
type SubPathMount struct {
	// Container is the container's name. Index is the mount's place among its volumeMounts.
	Container string
	Index     int
	// Volume is the volume's name. VolumePath is where it is on the host, see [Mount].
	Volume     string
	VolumePath string
	// Path is the subPath. A subPathExpr was expanded before.
	Path string
}

// SubPathError says why a subPath cannot be mounted.
type SubPathError struct {
	// Message is for the pod's status and events. It has nothing about the host's files.
	Message string
	// Detail says more about the volume's own content, for the pod's author: which link leads out.
	// It is empty if nothing more is known.
	Detail string
	// Err is the cause, only for the node's log.
	Err error
}

// Error returns the message alone.
func (e *SubPathError) Error() string { return e.Message }

// Why returns the detail.
func (e *SubPathError) Why() string { return e.Detail }

// Unwrap returns the cause.
func (e *SubPathError) Unwrap() error { return e.Err }

// SubPath mounts a part of a volume at a place of its own beneath the pod's directory, and returns
// that place for the runtime to mount. A missing path is created as directories with the mode of
// the volume's root. Symbolic links are followed as long as they stay inside the volume: keys of a
// ConfigMap are such links. The result is never outside of the volume, whatever containers do to
// the volume meanwhile.
//
// SubPath has to be called before every start of a container, and may be repeated. A mount that is
// still right is kept. A mount that is wrong now, because a ConfigMap changed, is mounted again.
// [Manager.Remove] unmounts. The error is a [SubPathError].
func (m *Manager) SubPath(ctx context.Context, uid types.UID, s SubPathMount) (hostPath string, err error) {
	if err := s.check(); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	hidden := func(doing string, err error) error {
		return &SubPathError{
			Message: fmt.Sprintf("failed to %s for volumeMount %q of container %q", doing, s.Volume, s.Container),
			Err:     err,
		}
	}
	volume, err := beneath.Root(s.VolumePath, 0)
	if err != nil {
		return "", hidden("prepare subPath", &fs.PathError{Op: "open", Path: s.VolumePath, Err: err})
	}
	defer closeFD(volume)
	if err := createBeneath(ctx, volume, s.Path); err != nil {
		if why := leadsOut(volume, s.Path); why != "" {
			return "", &SubPathError{Message: hidden("create subPath directory", nil).Error(), Detail: why, Err: err}
		}
		return "", hidden("create subPath directory", err)
	}
	source, err := beneath.Open(volume, s.Path, unix.O_PATH, 0)
	if err != nil {
		return "", hidden("prepare subPath",
			&fs.PathError{Op: "open", Path: filepath.Join(s.VolumePath, s.Path), Err: err})
	}
	defer closeFD(source)
	// The file system may have taken long to answer. From here on, it is not asked.
	if err := tasks.Hold(ctx); err != nil {
		return "", err
	}
	if err := checkDepth(source); errors.Is(err, errTooDeep) {
		return "", &SubPathError{Message: hidden("prepare subPath", nil).Error(), Detail: err.Error(), Err: err}
	} else if err != nil {
		return "", hidden("prepare subPath", err)
	}
	hostPath, err = m.bindSubPath(uid, &s, source)
	if err != nil {
		return "", hidden("prepare subPath", err)
	}
	return hostPath, nil
}

// leadsOut says through which symbolic link of the open directory volume a path leads out of it;
// empty if it does not. It does not say where the link points. It only explains an error: the
// volume may have changed since.
func leadsOut(volume int, path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		prefix := strings.Join(parts[:i+1], "/")
		fd, err := beneath.Open(volume, prefix, unix.O_PATH, 0)
		switch {
		case errors.Is(err, unix.EXDEV):
			return fmt.Sprintf("the path leads out of its volume through the link %q", prefix)
		case errors.Is(err, beneath.ErrNoFollow):
			return fmt.Sprintf("the link %q cannot be followed: %v", prefix, beneath.ErrNoFollow)
		case errors.Is(err, unix.ELOOP):
			return fmt.Sprintf("the link %q cannot be followed: it leads in a circle or into /proc", prefix)
		case err != nil:
			return ""
		}
		closeFD(fd)
	}
	return ""
}

// check refuses what API validation should have refused.
func (s *SubPathMount) check() error {
	if filepath.IsAbs(s.Path) {
		return &SubPathError{Message: fmt.Sprintf("error SubPath `%s` must not be an absolute path", s.Path)}
	}
	if s.Path == "" || slices.Contains(strings.Split(s.Path, "/"), "..") {
		return &SubPathError{Message: fmt.Sprintf("unable to provision SubPath `%s`: must not contain '..'", s.Path)}
	}
	for what, name := range map[string]string{"volume": s.Volume, "container": s.Container} {
		if err := checkName(what, name); err != nil {
			return &SubPathError{Message: err.Error()}
		}
	}
	return nil
}

// createBeneath makes the missing directories of path in the open directory volume. Nothing is made
// outside of it, whatever is renamed or linked meanwhile, and nothing when ctx has ended.
func createBeneath(ctx context.Context, volume int, path string) error {
	if fd, err := beneath.Open(volume, path, unix.O_PATH, 0); !errors.Is(err, unix.ENOENT) {
		if err == nil {
			closeFD(fd)
		}
		return err
	}
	var root unix.Stat_t
	if err := unix.Fstat(volume, &root); err != nil {
		return fmt.Errorf("stat volume: %w", err)
	}
	parts := slices.DeleteFunc(strings.Split(path, "/"), func(part string) bool { return part == "" || part == "." })
	parent, err := unix.FcntlInt(uintptr(volume), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { closeFD(parent) }()
	for i, part := range parts {
		// Each prefix is opened from the volume's root, so that links between its directories work.
		next, err := beneath.Open(volume, strings.Join(parts[:i+1], "/"), unix.O_PATH|unix.O_DIRECTORY, 0)
		if errors.Is(err, unix.ENOENT) {
			if err = ctx.Err(); err == nil { // the file system may have taken long to answer
				next, err = makeDirAt(parent, part, root.Mode)
			}
		}
		if err != nil {
			return &fs.PathError{Op: "make directory", Path: strings.Join(parts[:i+1], "/"), Err: err}
		}
		closeFD(parent)
		parent = next
	}
	return nil
}

// makeDirAt makes a directory with these permission bits, whatever the umask, and opens it. It
// makes the sticky bit, which a tmpfs has. The set-group-ID bit, which an fsGroup sets on each
// directory of the volume, comes from the parent. What is opened may be a directory that a
// container has put there since, and so its mode is not changed.
func makeDirAt(parent int, name string, mode uint32) (int, error) {
	if err := mkdirExactly(parent, name, mode&(unix.S_ISVTX|0o777)); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// mkdirExactly makes a directory whose mode no umask changes. The umask is the process's, except in
// a thread that has left the others.
func mkdirExactly(parent int, name string, mode uint32) error {
	return thread.Own(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("leave the umask: %w", err)
		}
		unix.Umask(0)
		return unix.Mkdirat(parent, name, mode)
	})
}

// bindSubPath mounts the open file or directory source at the subPath's place.
func (m *Manager) bindSubPath(uid types.UID, s *SubPathMount, source int) (string, error) {
	root, err := m.openPod(uid)
	if err != nil {
		return "", err
	}
	defer closeHandle(root)
	name := filepath.Join(subPathsDir, s.Volume, s.Container, strconv.Itoa(s.Index))
	target := filepath.Join(m.PodDir(uid), name)
	if same, err := m.clearTarget(target, source); err != nil || same {
		return target, err
	}
	if err := makeTarget(root, name, source); err != nil {
		return "", err
	}
	// The link in /proc leads to the open file itself. mount(8) must not replace it by a path.
	from := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), source)
	if err := m.deps.Mounter.MountSensitiveWithoutSystemdWithMountFlags(from, target, "", []string{"bind"}, nil,
		[]string{"--no-canonicalize"}); err != nil {
		return "", errors.Join(err, root.Remove(name))
	}
	same, err := sameFile(target, source)
	if err == nil && !same {
		err = errors.New("what was mounted is not what was opened")
	}
	if err != nil {
		return "", errors.Join(err, m.unmount(target), root.Remove(name))
	}
	return target, nil
}

// hasNoDevice reports whether an open file's file system is on no block device, as servers' are.
func hasNoDevice(file int) bool {
	var stat unix.Statx_t
	err := unix.Statx(file, "", known|unix.AT_EMPTY_PATH, unix.STATX_TYPE, &stat)
	return err == nil && stat.Dev_major == 0
}

// maxUnmounts bounds how many mounts on one target are unmounted.
const maxUnmounts = 16

// clearTarget unmounts what an earlier call mounted at target. If that is still source, it stays,
// and same is true.
func (m *Manager) clearTarget(target string, source int) (same bool, err error) {
	for range maxUnmounts {
		mounted, err := isMountPoint(target)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil || !mounted {
			return false, err
		}
		if same, err := sameFile(target, source); err != nil || same {
			return same, err
		}
		if err := m.unmount(target); err != nil {
			return false, err
		}
	}
	return false, fmt.Errorf("%s: %w", target, ErrMounted)
}

// makeTarget makes the directory or the empty file on which source can be mounted.
func makeTarget(root *os.Root, name string, source int) error {
	var stat unix.Statx_t
	if err := unix.Statx(source, "", known|unix.AT_EMPTY_PATH, unix.STATX_TYPE, &stat); err != nil {
		return fmt.Errorf("stat subPath: %w", err)
	}
	isDir := stat.Mode&unix.S_IFMT == unix.S_IFDIR
	if info, err := root.Lstat(name); err == nil {
		if info.IsDir() == isDir && (isDir || info.Mode().IsRegular()) {
			return nil
		}
		if err := root.Remove(name); err != nil {
			return err
		}
	}
	if err := root.MkdirAll(filepath.Dir(name), dirMode); err != nil {
		return err
	}
	if isDir {
		return root.Mkdir(name, dirMode)
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return file.Close()
}

// known has the kernel say what it knows of a file, without asking the file's server.
const known = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC

// sameFile reports whether path, which is not followed, is the open file.
func sameFile(path string, fd int) (bool, error) {
	var a, b unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, known, unix.STATX_INO, &a); err != nil {
		return false, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	if err := unix.Statx(fd, "", known|unix.AT_EMPTY_PATH, unix.STATX_INO, &b); err != nil {
		return false, fmt.Errorf("stat subPath: %w", err)
	}
	return a.Dev_major == b.Dev_major && a.Dev_minor == b.Dev_minor && a.Ino == b.Ino, nil
}
