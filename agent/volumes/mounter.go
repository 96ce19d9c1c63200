package volumes

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Mounter mounts and unmounts. [KernelMounter] does; every mounter of k8s.io/mount-utils does, too.
type Mounter interface {
	// MountSensitiveWithoutSystemdWithMountFlags mounts source on target. options are those of
	// mount(8) -o. sensitiveOptions are more of them, which must not be logged. mountFlags are
	// flags of mount(8) itself.
	MountSensitiveWithoutSystemdWithMountFlags(source, target, fstype string,
		options, sensitiveOptions, mountFlags []string) error
	// Unmount removes the last mount on target.
	Unmount(target string) error
}

// detacher is what a [Mounter] may have besides. Detach takes a busy mount out of the tree, and the
// kernel unmounts it once nobody uses it.
type detacher interface {
	Detach(target string) error
}

// KernelMounter is a [Mounter] that calls the kernel. It knows the options in mountFlags, and
// passes all others to the file system.
type KernelMounter struct{}

// mountFlags are the options that are flags of a mount, as mount(8) spells them. bindFlags are the
// flags that a bind mount can have of its own.
func mountFlags() map[string]uintptr {
	return map[string]uintptr{
		"bind":        unix.MS_BIND,
		"defaults":    0,
		"dirsync":     unix.MS_DIRSYNC,
		"lazytime":    unix.MS_LAZYTIME,
		"noatime":     unix.MS_NOATIME,
		"nodev":       unix.MS_NODEV,
		"nodiratime":  unix.MS_NODIRATIME,
		"noexec":      unix.MS_NOEXEC,
		"nosuid":      unix.MS_NOSUID,
		"relatime":    unix.MS_RELATIME,
		"ro":          unix.MS_RDONLY,
		"rw":          0,
		"strictatime": unix.MS_STRICTATIME,
		"sync":        unix.MS_SYNCHRONOUS,
	}
}

const bindFlags = unix.MS_NOATIME | unix.MS_NODEV | unix.MS_NODIRATIME | unix.MS_NOEXEC | unix.MS_NOSUID |
	unix.MS_RDONLY | unix.MS_RELATIME

// MountSensitiveWithoutSystemdWithMountFlags mounts source on target. It ignores the flags of
// mount(8), since the kernel never rewrites a path. If the options of a bind mount cannot be set,
// it undoes the mount.
func (k KernelMounter) MountSensitiveWithoutSystemdWithMountFlags(
	source, target, fstype string, options, sensitiveOptions, _ []string,
) error {
	var flags uintptr
	var data []string
	for _, option := range append(append([]string(nil), options...), sensitiveOptions...) {
		if flag, ok := mountFlags()[option]; ok {
			flags |= flag
		} else {
			data = append(data, option)
		}
	}
	if err := unix.Mount(source, target, fstype, flags, strings.Join(data, ",")); err != nil {
		return &os.PathError{Op: "mount", Path: target, Err: err}
	}
	if flags&unix.MS_BIND == 0 || flags&bindFlags == 0 {
		return nil
	}
	if err := remount(target, flags&bindFlags); err != nil {
		return errors.Join(err, k.Unmount(target))
	}
	return nil
}

// remount sets the flags of a bind mount, beside those that it has from its source. The kernel
// ignores them when it binds.
func remount(target string, flags uintptr) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(target, &stat); err != nil {
		return &os.PathError{Op: "statfs", Path: target, Err: err}
	}
	for have, keep := range map[int64]uintptr{
		unix.ST_NODEV:      unix.MS_NODEV,
		unix.ST_NOEXEC:     unix.MS_NOEXEC,
		unix.ST_NOSUID:     unix.MS_NOSUID,
		unix.ST_RDONLY:     unix.MS_RDONLY,
		unix.ST_NOATIME:    unix.MS_NOATIME,
		unix.ST_NODIRATIME: unix.MS_NODIRATIME,
		unix.ST_RELATIME:   unix.MS_RELATIME,
	} {
		if stat.Flags&have != 0 {
			flags |= keep
		}
	}
	if err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); err != nil {
		return &os.PathError{Op: "remount", Path: target, Err: err}
	}
	return nil
}

// Unmount removes the last mount on target, which must not be a symbolic link.
func (KernelMounter) Unmount(target string) error {
	if err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW); err != nil {
		return &os.PathError{Op: "unmount", Path: target, Err: err}
	}
	return nil
}

// Detach takes the mount on target, which must not be a symbolic link, out of the tree, busy or
// not.
func (KernelMounter) Detach(target string) error {
	if err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return &os.PathError{Op: "detach", Path: target, Err: err}
	}
	return nil
}

// mountTmpfs mounts a tmpfs of at most size bytes on target; 0 is the kernel's default, half of the
// memory. The tmpfs is never swapped out if the kernel can do that (Linux 6.4).
func (m *Manager) mountTmpfs(target string, size int64) error {
	var options []string
	if size > 0 {
		options = append(options, fmt.Sprintf("size=%d", size))
	}
	if !m.swappable.Load() {
		err := m.deps.Mounter.MountSensitiveWithoutSystemdWithMountFlags("tmpfs", target, "tmpfs",
			append(options, "noswap"), nil, nil)
		if err == nil {
			return nil
		}
	}
	if err := m.deps.Mounter.MountSensitiveWithoutSystemdWithMountFlags("tmpfs", target, "tmpfs", options,
		nil, nil); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	m.swappable.Store(true)
	return nil
}

// mountHugePages mounts huge pages of a size on target. A container's own limit says how many it
// may use.
func (m *Manager) mountHugePages(target string, pageSize int64) error {
	err := m.deps.Mounter.MountSensitiveWithoutSystemdWithMountFlags("nodev", target, onHugePages,
		[]string{fmt.Sprintf("pagesize=%d", pageSize)}, nil, nil)
	if err != nil {
		return fmt.Errorf("mount huge pages of %d bytes: %w", pageSize, err)
	}
	return nil
}

// isMountPoint reports whether something is mounted on path itself. A symbolic link at the end of
// path is not followed. If the path does not exist, the error is [os.ErrNotExist]. The server of
// what is mounted is not asked: it may be silent.
func isMountPoint(path string) (bool, error) {
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, known, unix.STATX_TYPE, &stat); err != nil {
		return false, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	if stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return inMountTable(path) // the kernel is older than 5.8
	}
	return stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// closeFD closes a file descriptor through which nothing was written.
func closeFD(fd int) { _ = unix.Close(fd) }

// closeHandle closes a handle through which nothing was written.
func closeHandle(handle io.Closer) { _ = handle.Close() }
