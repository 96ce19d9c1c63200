package logs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/beneath"
)

// ErrNotRegular is the error of a log that is not a regular file.
var ErrNotRegular = errors.New("not a regular file")

// ErrEscape is the error of a path that contains a link or leaves its root.
var ErrEscape = errors.New("path leads out of the log directory")

// dir is a directory with logs in it, held open by its descriptor. It stays the same directory even
// if its name leads elsewhere.
type dir struct {
	fd int
}

// openDir opens the directory of a log file, and returns the file's name in that directory.
func openDir(file File) (*dir, string, error) {
	path := filepath.Clean(file.Path)
	if !filepath.IsLocal(path) || path == "." {
		return nil, "", ErrEscape
	}
	root, err := beneath.Root(file.Root, 0)
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

// open opens a regular file of the directory. It never waits, as opening a pipe would.
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

// names returns the sorted names of everything in the directory.
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
	fd, err := beneath.Open(root, path, flags, beneath.NoSymlinks)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) {
		return -1, fmt.Errorf("%w: %w", ErrEscape, err)
	}
	return fd, err
}
