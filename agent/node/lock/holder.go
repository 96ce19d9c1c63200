package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Holder is the agent that holds a lock.
type Holder struct {
	// PID is 0 if the process is not known: it may be another user's, or in another PID namespace.
	PID int
	// RootDir is the agent's root directory; empty if it is not known.
	RootDir string
}

// String returns what is known of the holder, in brackets and after a space; empty if nothing is.
func (h Holder) String() string {
	switch {
	case h.PID == 0:
		return ""
	case h.RootDir == "":
		return fmt.Sprintf(" (process %d)", h.PID)
	}
	return fmt.Sprintf(" (process %d, root directory %s)", h.PID, h.RootDir)
}

// OfRoot reports whether an agent holds the lock of a root directory, and which. It takes no lock.
func OfRoot(rootDir string) (by Holder, held bool, err error) {
	f, err := os.OpenFile(rootLock(rootDir), os.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return Holder{}, false, nil
	}
	if err != nil {
		return Holder{}, false, fmt.Errorf("opening the lock: %w", err)
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return holderOf(f), true, nil
	}
	return Holder{}, false, err
}

// holderOf finds the process that holds the lock of an open file, in /proc: the process has the
// same file open, and the kernel lists the lock with that descriptor (proc_pid_fdinfo(5)). A thread
// may have files that its process does not have; threads come last, because they are many. Files of
// another user's process are not followed, because that user's file system may never answer: there,
// the number of the file has to do.
func holderOf(f *os.File) (by Holder) {
	info, err := f.Stat()
	if err != nil {
		return Holder{}
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Holder{}
	}
	for _, pattern := range []string{"/proc/[0-9]*", "/proc/[0-9]*/task/[0-9]*"} {
		processes, _ := filepath.Glob(pattern)
		for _, process := range processes {
			if !locks(process, stat.Ino, func(fd string) bool {
				if !own(process) {
					return true
				}
				other, err := os.Stat(fd)
				return err == nil && os.SameFile(info, other)
			}) {
				continue
			}
			if by = (Holder{PID: pidOf(process), RootDir: rootOf(process)}); own(process) {
				return by // it is sure
			}
		}
		if by.PID != 0 {
			break
		}
	}
	return by
}

// pidOf returns the process of a directory in /proc, which may be that of a thread.
func pidOf(process string) int {
	name, _, _ := strings.Cut(strings.TrimPrefix(process, "/proc/"), "/")
	pid, _ := strconv.Atoi(name) // 0 if it is no number
	return pid
}

// own reports whether a process is one of this process's user, and was never another user's
// (proc_pid_status(5)): who owns its directory in /proc does not say that.
func own(process string) bool {
	text, err := os.ReadFile(filepath.Join(process, "status"))
	if err != nil {
		return false
	}
	self := strconv.Itoa(os.Geteuid())
	for line := range strings.Lines(string(text)) {
		if ids, found := strings.CutPrefix(line, "Uid:"); found {
			return !slices.ContainsFunc(strings.Fields(ids), func(id string) bool { return id != self })
		}
	}
	return false
}

// locks reports whether a process holds the lock of one of its open files that has this inode; 0 is
// any. is says which file is meant by the path of its link in /proc/PID/fd. The kernel's list comes
// first, because it takes no file system.
func locks(process string, inode uint64, is func(fd string) bool) bool {
	fds, _ := os.ReadDir(filepath.Join(process, "fd"))
	for _, fd := range fds {
		info, err := os.ReadFile(filepath.Join(process, "fdinfo", fd.Name()))
		if err == nil && locked(string(info), inode) && is(filepath.Join(process, "fd", fd.Name())) {
			return true
		}
	}
	return false
}

// locked reports whether the text of /proc/PID/fdinfo/FD has a lock of a file with this inode, as
// in "lock:	1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF".
func locked(fdinfo string, inode uint64) bool {
	for line := range strings.Lines(fdinfo) {
		if strings.HasPrefix(line, "lock:") && strings.Contains(line, "FLOCK") &&
			(inode == 0 || strings.Contains(line, fmt.Sprintf(":%d ", inode))) {
			return true
		}
	}
	return false
}

// rootOf returns the root directory whose lock an agent's process holds. An agent is a process of
// this one's user.
func rootOf(process string) (root string) {
	if !own(process) {
		return ""
	}
	locks(process, 0, func(fd string) bool {
		path, err := os.Readlink(fd)
		if err != nil || !strings.HasSuffix(path, rootLock("")) || !isRootLock(fd, path) {
			return false
		}
		root = filepath.Dir(filepath.Dir(path))
		return true
	})
	return root
}

// isRootLock reports whether an open file is one that only an agent makes: it is at its path for
// this process, too, and this process's user owns it.
func isRootLock(fd, path string) bool {
	open, err := os.Stat(fd)
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	if err != nil || !os.SameFile(open, named) {
		return false
	}
	stat, ok := named.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
