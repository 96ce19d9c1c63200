package logs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNotRegular is the error of a log that is no regular file.
var ErrNotRegular = errors.New("not a regular file")

// ErrEscape is the error of a path that leads through a link or out of its root.
var ErrEscape = errors.New("path leads out of the log directory")

// dir is a directory with logs in it, by its descriptor: whatever becomes of its name, it stays the same.
type dir struct {
	fd int
}

// openDir opens the directory that a log file is in, and returns the file's name in it.
func openDir(file File) (*dir, string, error) {
	path := filepath.Clean(file.Path)
	if !filepath.IsLocal(path) || path == "." {
		return nil, "", ErrEscape
	}
	root, err := retry(func() (int, error) {
		return unix.Open(file.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, "", fmt.Errorf("open root %s: %w", file.Root, err)
	}
	defer func() { _ = unix.Close(root) }()
	fd, err := openBeneath(root, filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, "", err
	}
	return &dir{fd: fd}, filepath.Base(path), nil
}

func (d *dir) close() error { return unix.Close(d.fd) }

// open opens a regular file of the directory. It does not wait for anybody, as opening a pipe would.
func (d *dir) open(name string) (*os.File, error) {
	fd, err := openBeneath(d.fd, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.Join(ErrNotRegular, err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// names returns the names of what is in the directory, in their order.
func (d *dir) names() ([]string, error) {
	fd, err := openBeneath(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), ".")
	entries, err := f.ReadDir(-1)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, errors.Join(err, f.Close())
}

// openBeneath opens a path beneath a directory and follows no link.
func openBeneath(root int, path string, flags int) (int, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat2(root, path, &unix.OpenHow{
			Flags:   uint64(flags | unix.O_CLOEXEC),
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
	})
	if errors.Is(err, unix.ENOSYS) {
		fd, err = walkBeneath(root, path, flags)
	}
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) {
		return -1, fmt.Errorf("%w: %w", ErrEscape, err)
	}
	return fd, err
}

// walkBeneath does the same element by element, for kernels before 5.6.
func walkBeneath(root int, path string, flags int) (int, error) {
	at := root
	elements := strings.Split(path, "/")
	for i, element := range elements {
		if element == ".." || element == "" {
			return -1, ErrEscape
		}
		f := unix.O_PATH | unix.O_DIRECTORY
		if i == len(elements)-1 {
			f = flags
		}
		fd, err := retry(func() (int, error) { return unix.Openat(at, element, f|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0) })
		if at != root {
			_ = unix.Close(at)
		}
		if errors.Is(err, unix.ENOTDIR) {
			return -1, fmt.Errorf("%w: %w", ErrEscape, err) // a link, or a file where a directory should be
		}
		if err != nil {
			return -1, err
		}
		at = fd
	}
	return at, nil
}

// retry calls again what a signal or a change of the path under way interrupted.
func retry(open func() (int, error)) (int, error) {
	for range 100 {
		fd, err := open()
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}
