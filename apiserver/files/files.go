// Package files replaces files so that a crash leaves the old one or the new one.
//
// Purpose: keys, kubeconfigs and snapshots have secrets. Their files are made anew and never
// opened again under another name, so that nobody else can have put a file or a link there.
//
// Truth owned: none. Concurrency: every function may be called from any goroutine.
package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Replace puts a new file, which only the caller's user may read and write, in the place of path,
// after write has filled it and it is on the disk. If it fails, what was at path stays.
func Replace(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // O_EXCL and the mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return SyncDirectory(filepath.Dir(path))
}

// RemoveLeftovers removes what processes that were killed in [Replace] left beside a file. Nobody
// replaces it meanwhile.
func RemoveLeftovers(path string) error {
	dir, name := filepath.Split(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for what is left of %s: %w", path, err)
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), "."+name+".")
		if !ok || strings.Trim(number, "0123456789") != "" {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove what is left of %s: %w", path, err)
		}
	}
	return nil
}

// SyncDirectory brings the names in a directory to the disk.
func SyncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync a directory: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync the directory %s: %w", path, err)
	}
	return nil
}
