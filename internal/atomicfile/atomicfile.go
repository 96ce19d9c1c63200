// Package atomicfile replaces files: a reader sees the old content or the new content, never a part
// of one.
//
// Purpose: one rule of durability for all that berth keeps on disk. A file that must outlive a
// power loss is written with [OverPowerLoss]: its content is synced before the rename, and its
// directory after it. Without the first sync the file may be empty afterwards; without the second
// it may have its old content. A file that only has to outlive the end of the agent is written with
// [OverCrash]: the kernel keeps it, and no disk is waited for.
//
// Truth owned: none. Concurrency: one writer for a path at a time; readers need nothing.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Unfinished ends the names of files that are being written. A reader that lists a directory of
// such files must skip these names.
const Unfinished = ".tmp"

// Keep says what a file's content has to outlive.
type Keep int

const (
	// OverCrash keeps the content if the process is killed. A power loss may take it.
	OverCrash Keep = iota
	// OverPowerLoss keeps the content if the machine loses its power right after [Write] has
	// returned.
	OverPowerLoss
)

// Write gives the file at path the content data and the mode, all at once. The directory must
// exist. If Write fails, the file has its old content, and nothing is left beside it.
func Write(path string, data []byte, mode fs.FileMode, keep Keep) error {
	return write(host{}, path, data, mode, keep)
}

// WriteIn is [Write] for a path beneath a root. No symbolic link leads out of the root.
func WriteIn(root *os.Root, path string, data []byte, mode fs.FileMode, keep Keep) error {
	return write(root, path, data, mode, keep)
}

// files is the place where a file is replaced: [host], or an [os.Root].
type files interface {
	Open(name string) (*os.File, error)
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Remove(name string) error
	Rename(from, to string) error
}

// host is the file system as the process sees it.
type host struct{}

func (host) Open(name string) (*os.File, error) { return os.Open(name) }

func (host) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, perm)
}

func (host) Remove(name string) error     { return os.Remove(name) }
func (host) Rename(from, to string) error { return os.Rename(from, to) }

func write(in files, path string, data []byte, mode fs.FileMode, keep Keep) (err error) {
	next := path + Unfinished
	f, err := in.OpenFile(next, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = in.Remove(next) // the unfinished file must not stay on a full disk
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode) // the umask, or an unfinished file of before, may have given it another
	}
	if err == nil && keep == OverPowerLoss {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := in.Rename(next, path); err != nil {
		return err
	}
	if keep == OverPowerLoss {
		return syncDir(in, filepath.Dir(path))
	}
	return nil
}

// Remove removes the file at path, and the leftover of an unfinished [Write]. A file that does not
// exist is no error.
func Remove(path string, keep Keep) error {
	for _, p := range []string{path + Unfinished, path} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if keep == OverPowerLoss {
		if err := syncDir(host{}, filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// RemoveUnfinished removes from a directory what writers that were killed have left unfinished. No
// writer may be at work there.
func RemoveUnfinished(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), Unfinished) && !e.IsDir() {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// syncDir writes the names in a directory to the disk.
func syncDir(in files, dir string) error {
	d, err := in.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
