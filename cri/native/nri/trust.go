package nri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// onlyRoots returns an error if others than root may write to a directory or to something in it, or
// may replace the directory. What is in it is run by root, or says what such a program does. There
// may be no such directory.
func onlyRoots(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(real)
	if err != nil {
		return err
	}
	paths := []string{real}
	for _, e := range entries {
		paths = append(paths, filepath.Join(real, e.Name()))
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if err := roots(info, 0); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for path := real; path != "/"; {
		path = filepath.Dir(path)
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if err := roots(info, fs.ModeSticky); err != nil {
			return fmt.Errorf("%s, which is above %s: %w", path, dir, err)
		}
	}
	return nil
}

// roots returns an error if others than the user of this process may write to a file, unless it has
// a mode with which they may not replace what is not theirs.
func roots(info fs.FileInfo, unless fs.FileMode) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() && stat.Uid != 0 {
		return fmt.Errorf("its owner has the user ID %d, and could run programs as root: give it to root (chown root)",
			stat.Uid)
	}
	if mode := info.Mode(); mode.Perm()&0o022 != 0 && mode&unless == 0 {
		return fmt.Errorf("its mode %04o lets others write to it, who could run programs as root: take that away "+
			"(chmod go-w)", mode.Perm())
	}
	return nil
}
