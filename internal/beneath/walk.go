package beneath

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// walker is one walk of a path, for kernels before 5.6. It opens one element after the other, each
// in the directory that was opened before, and follows no link. So a rename meanwhile cannot lead
// it out of the directory where it began.
type walker struct {
	resolve uint64
	// mount is the ID of the mount that the walk must stay in; empty without NoXDev.
	mount string
}

// walk does the same as openat2, as far as the package's doc says.
func walk(dir int, path string, flags int, resolve uint64) (int, error) {
	if resolve&^(NoSymlinks|NoXDev) != 0 {
		return -1, unix.EINVAL
	}
	elements, err := split(path)
	if err != nil {
		return -1, err
	}
	if strings.HasSuffix(path, "/") {
		flags |= unix.O_DIRECTORY
		flags &^= unix.O_NOFOLLOW // the kernel, too, follows a link that has a slash behind it
	}
	w := &walker{resolve: resolve}
	if resolve&NoXDev != 0 {
		if w.mount, err = mountID(dir); err != nil {
			return -1, err
		}
	}
	at := dir
	for i, element := range elements {
		var next int
		if i < len(elements)-1 {
			next, err = w.enter(at, element)
		} else {
			next, err = w.last(at, element, flags)
		}
		if at != dir {
			_ = unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

// split returns the elements of a path, at least one.
func split(path string) ([]string, error) {
	if path == "" {
		return nil, unix.ENOENT
	}
	if strings.HasPrefix(path, "/") {
		return nil, unix.EXDEV
	}
	var elements []string
	for element := range strings.SplitSeq(path, "/") {
		switch element {
		case "", ".":
		case "..":
			// A directory's ".." changes when the directory is moved: it may lead out.
			return nil, unix.EXDEV
		default:
			elements = append(elements, element)
		}
	}
	if len(elements) == 0 {
		return []string{"."}, nil
	}
	return elements, nil
}

// enter opens a directory on the way.
func (w *walker) enter(at int, element string) (int, error) {
	return w.open(at, element, unix.O_PATH|unix.O_NOFOLLOW, func(mode uint32) error {
		switch mode {
		case unix.S_IFLNK:
			return w.link(element)
		case unix.S_IFDIR:
			return nil
		}
		return unix.ENOTDIR
	})
}

// last opens the path's last element with the caller's flags. If the flags do not have O_NOFOLLOW,
// last refuses a link.
func (w *walker) last(at int, element string, flags int) (int, error) {
	follow := flags&unix.O_NOFOLLOW == 0
	fd, err := w.open(at, element, flags|unix.O_NOFOLLOW, func(mode uint32) error {
		if follow && mode == unix.S_IFLNK {
			return w.link(element)
		}
		return nil
	})
	if follow && (errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR)) {
		// The kernel also returns ENOTDIR for a link, if the caller asks for a directory.
		var stat unix.Stat_t
		if unix.Fstatat(at, element, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil && stat.Mode&unix.S_IFMT == unix.S_IFLNK {
			return -1, w.link(element)
		}
	}
	return fd, err
}

// link returns the error of a symbolic link in a path.
func (w *walker) link(name string) error {
	if w.resolve&NoSymlinks != 0 {
		return unix.ELOOP
	}
	return fmt.Errorf("%q: %w", name, ErrNoFollow)
}

// open opens one element. open closes the descriptor again if check refuses the file's type, or if
// the file is on another mount.
func (w *walker) open(at int, element string, flags int, check func(mode uint32) error) (int, error) {
	fd, err := again(func() (int, error) { return unix.Openat(at, element, flags|unix.O_CLOEXEC, 0) })
	if err != nil {
		return -1, err
	}
	var stat unix.Stat_t
	if err = unix.Fstat(fd, &stat); err == nil {
		err = check(stat.Mode & unix.S_IFMT)
	}
	if err == nil && w.mount != "" {
		err = w.sameMount(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (w *walker) sameMount(fd int) error {
	mount, err := mountID(fd)
	if err == nil && mount != w.mount {
		err = unix.EXDEV
	}
	return err
}

// mountID returns the ID of the mount that an open file is on (proc(5), fdinfo; Linux 3.15). The
// number of the device is not enough: a bind mount of the same file system has the same number.
func mountID(fd int) (string, error) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return "", fmt.Errorf("find the mount of an open file: %w", err)
	}
	for line := range strings.Lines(string(info)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", errors.New("find the mount of an open file: /proc/self/fdinfo has no mnt_id")
}
