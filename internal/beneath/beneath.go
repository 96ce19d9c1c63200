// Package beneath opens files beneath a directory: wherever symbolic links or renames lead, the
// result is never outside of that directory (CVE-2017-1002101, CVE-2021-25741).
//
// Purpose: one way to open what containers can write to ([Open]), one to walk over it ([Tree]), and
// one to delete it ([Remove]).
// [Open] asks the kernel (openat2, Linux 5.6). On an older kernel it walks element by element, and
// refuses what it cannot do safely there:
//
//	path            openat2                    walk of an older kernel
//	"a/b", "a//b/"  opened                     opened
//	"../a", "/a"    EXDEV                      EXDEV
//	"a/../b"        opened                     EXDEV
//	symbolic link   followed while it stays    [ErrNoFollow]
//	                beneath the directory
//	the same with   ELOOP                      ELOOP
//	NoSymlinks
//	mount point,    EXDEV                      EXDEV, found by the mount's ID in /proc/self/fdinfo
//	with NoXDev
//
// Truth owned: none. Concurrency: the functions are safe for concurrent use.
package beneath

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Flags that say what [Open] must not cross. They are the kernel's (RESOLVE_…).
const (
	// NoSymlinks refuses a path with a symbolic link in it (ELOOP). A link at the path's end can be
	// opened itself, with O_PATH and O_NOFOLLOW.
	NoSymlinks = unix.RESOLVE_NO_SYMLINKS
	// NoXDev refuses a path that crosses a mount point (EXDEV), bind mounts among them.
	NoXDev = unix.RESOLVE_NO_XDEV
)

// ErrNoFollow is the error of a path with a symbolic link in it that is to be followed, on a kernel
// without openat2.
var ErrNoFollow = errors.New("the kernel (before 5.6) cannot follow a symbolic link safely")

// maxTries bounds how often an open is tried again because a container renamed a directory
// meanwhile, or because a signal interrupted the open.
const maxTries = 128

// Root opens the directory at path as one to call [Open] with, by O_PATH and close-on-exec. path
// itself is trusted: its links are followed, unless flags have O_NOFOLLOW.
func Root(path string, flags int) (int, error) {
	return again(func() (int, error) {
		return unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|flags, 0)
	})
}

// Open opens the path beneath the open directory dir, close-on-exec. flags are those of open(2),
// without O_CREAT. resolve is a combination of [NoSymlinks] and [NoXDev], or 0. Magic links, as in
// /proc, are always refused (ELOOP). The caller closes the descriptor.
func Open(dir int, path string, flags int, resolve uint64) (int, error) {
	fd, err := openat2(dir, path, flags, resolve)
	if errors.Is(err, unix.ENOSYS) {
		return walk(dir, path, flags, resolve)
	}
	return fd, err
}

func openat2(dir int, path string, flags int, resolve uint64) (int, error) {
	how := &unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | resolve,
	}
	return again(func() (int, error) { return unix.Openat2(dir, path, how) })
}

// again repeats a call that was interrupted by a signal, or by a change of the path meanwhile.
func again(open func() (int, error)) (fd int, err error) {
	for range maxTries {
		fd, err = open()
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return fd, err
}
