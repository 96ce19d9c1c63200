package beneath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// maxDepth bounds how deep a deletion descends, and so how many files it holds open. Containers
	// can nest directories much deeper.
	maxDepth = 64
	// batch is how many names of a directory are read at once.
	batch = 512
	// maxSweeps bounds how often a directory that should be empty is read again.
	maxSweeps = 16
)

// ErrMounted is the error of [Remove] where something is mounted.
var ErrMounted = errors.New("still mounted")

// Remove deletes name in the open directory parent: a file, a link or a whole tree that containers
// have written. It follows no symbolic link. At the first mount point it ends with [ErrMounted],
// and touches nothing there. It succeeds if the name does not exist.
func Remove(ctx context.Context, parent int, name string) error {
	r := &remover{ctx: ctx, top: parent, topName: name}
	return r.remove(parent, name, name, 0)
}

// remover is one deletion of a tree.
type remover struct {
	ctx context.Context
	// top is the directory that has the tree, and topName the tree's name. moved counts the
	// directories that were moved up because they lie too deep.
	top     int
	topName string
	moved   int
}

// remove deletes name in the directory parent. shown is its path for errors.
func (r *remover) remove(parent int, name, shown string, depth int) error {
	err := unix.Unlinkat(parent, name, 0)
	if !errors.Is(err, unix.EISDIR) {
		return deleted(err, "delete", shown)
	}
	if depth == maxDepth {
		return r.moveUp(parent, name, shown)
	}
	for sweeps := 0; sweeps < maxSweeps; sweeps++ {
		moved := r.moved
		if err := r.empty(parent, name, shown, depth); err != nil {
			return err
		}
		err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
			break
		}
		if r.moved > moved {
			sweeps = 0 // directories came to the top of the tree, which is progress
		}
	}
	return deleted(err, "delete", shown)
}

// deleted turns the kernel's answer to a step of a deletion into an error. It is nil if the file is
// gone.
func deleted(err error, step, shown string) error {
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EXDEV):
		return fmt.Errorf("%s: %w", shown, ErrMounted)
	}
	return &fs.PathError{Op: step, Path: shown, Err: err}
}

// empty deletes all that is in a directory.
func (r *remover) empty(parent int, name, shown string, depth int) error {
	fd, err := Open(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, NoXDev|NoSymlinks)
	if err != nil {
		return deleted(err, "open", shown)
	}
	return eachName(fd, shown, r.ctx.Err, func(child string) error {
		return r.remove(fd, child, shown+"/"+child, depth+1)
	})
}

// eachName reads a directory, closes it, and calls f with each name in it. It stops if f fails, or
// if stopped, which it calls between batches, returns an error.
func eachName(fd int, shown string, stopped func() error, f func(name string) error) error {
	dir := os.NewFile(uintptr(fd), shown)
	defer dir.Close()
	for {
		if err := stopped(); err != nil {
			return err
		}
		names, err := dir.Readdirnames(batch)
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// moveUp moves a directory that lies too deep to the top of the tree. A later sweep of the top
// finds it there.
func (r *remover) moveUp(parent int, name, shown string) error {
	for {
		r.moved++
		target := r.topName + "/" + movedPrefix + strconv.Itoa(r.moved)
		err := unix.Renameat2(parent, name, r.top, target, unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return deleted(err, "move up", shown)
		}
	}
}

// movedPrefix begins the names of directories that were moved up.
const movedPrefix = ".berth-deleting-"
