package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/apiserver/files"
)

// folder is where the store of a data directory is.
func folder(dataDir string) string { return filepath.Join(dataDir, "etcd") }

// restoring is where [Restore] makes a store. Until it has another name it may not be whole.
func restoring(dataDir string) string { return folder(dataDir) + ".restoring" }

// Prepare makes the folder of the store if the data directory never had one, and says whether the
// store begins empty. It comes before the keys are made: a directory that has keys, or the folder of
// a restore, has lost its store, and an empty one would remove all pods of the node. The caller
// holds the directory's [Lock].
func Prepare(dataDir string) (empty bool, err error) {
	_, err = os.Stat(folder(dataDir))
	missing := errors.Is(err, fs.ErrNotExist)
	if err == nil {
		_, err = os.Stat(filepath.Dir(journal(folder(dataDir))))
	}
	switch {
	case err == nil:
		return false, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("look for the store: %w", err)
	case !missing:
		return true, refuseSmall(dataDir, newStore)
	}
	if err := refuseLost(dataDir); err != nil {
		return true, err
	}
	if err := refuseSmall(dataDir, newStore); err != nil {
		return true, err
	}
	return true, makeFolder(dataDir)
}

// makeFolder makes the folder of the store.
func makeFolder(dataDir string) error {
	if err := os.MkdirAll(folder(dataDir), 0o700); err != nil {
		return fmt.Errorf("make the folder of the store: %w", err)
	}
	return files.SyncDirectory(dataDir)
}

// refuseSmall returns an error if the disk of a folder has less than least bytes free.
func refuseSmall(dir string, least uint64) error {
	free, err := freeSpace(dir)
	if err != nil {
		return err
	}
	if free < least {
		return fmt.Errorf("a new store needs %d MiB, and the disk of %s has %d MiB left: free some space, or choose another "+
			"--data-dir", least>>20, dir, free>>20)
	}
	return nil
}

// refuseLost returns an error if a data directory without a store had one.
func refuseLost(dataDir string) error {
	entries, err := os.ReadDir(dataDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for the store: %w", err)
	}
	for _, e := range slices.Backward(entries) { // the newest first
		left := filepath.Join(dataDir, e.Name())
		switch {
		case !e.IsDir() || !strings.HasPrefix(left, folder(dataDir)+"."):
		case left == restoring(dataDir):
			return fmt.Errorf("the store %s is missing, and %s is of a restore that broke off: run \"berth-apiserver "+
				"snapshot restore\" again, or %s", folder(dataDir), left, toBeginEmpty(dataDir))
		default:
			return fmt.Errorf("the store %s is missing, but %s is there, which a restore kept: rename it to %s to use it, "+
				"restore a snapshot, or %s", folder(dataDir), left, folder(dataDir), toBeginEmpty(dataDir))
		}
	}
	if !isFile(lastKey(dataDir)) {
		return nil
	}
	return fmt.Errorf("the store %s is missing, but its keys are in %s: restore a snapshot with \"berth-apiserver "+
		"snapshot restore FILE\", set --etcd-servers if the content is elsewhere, or %s", folder(dataDir),
		filepath.Dir(lastKey(dataDir)), toBeginEmpty(dataDir))
}

// toBeginEmpty says how a data directory without a store gets an empty one.
func toBeginEmpty(dataDir string) string {
	return fmt.Sprintf("run \"mkdir -m 0700 %s\" to begin with an empty API, whose node then stops all pods of the old "+
		"one", folder(dataDir))
}

// replace puts the restored store into its place. It keeps the old store beside it and returns the
// folder where, "" if there was none. The two change places in one step of the kernel.
func replace(dataDir string, now time.Time) (kept string, err error) {
	fresh, place := restoring(dataDir), folder(dataDir)
	if err := syncFileSystem(fresh); err != nil {
		return "", err
	}
	if _, err := os.Stat(place); errors.Is(err, fs.ErrNotExist) {
		if err := os.Rename(fresh, place); err != nil {
			return "", fmt.Errorf("put the restored store into its place: %w", err)
		}
		return "", files.SyncDirectory(dataDir)
	}
	// The name of an old store is given before the exchange, because the next restore removes what
	// has the name of a broken-off one.
	name := place + "." + now.UTC().Format("20060102T150405Z")
	kept = name
	err = os.Rename(fresh, kept)
	for n := 2; errors.Is(err, fs.ErrExist); n++ { // a second restore in that second
		kept = fmt.Sprintf("%s-%d", name, n)
		err = os.Rename(fresh, kept)
	}
	if err != nil {
		return "", fmt.Errorf("put the restored store beside the old one: %w", err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, kept, unix.AT_FDCWD, place, unix.RENAME_EXCHANGE); err != nil {
		err = fmt.Errorf("exchange %s, which stays as it was, and the restored store %s (the file system must know "+
			"renameat2's RENAME_EXCHANGE, as ext4, XFS, Btrfs and tmpfs do): %w", place, kept, err)
		return "", errors.Join(err, os.RemoveAll(kept))
	}
	return kept, files.SyncDirectory(dataDir)
}

// syncFileSystem brings everything below a directory to the disk, and the rest of its file system
// (syncfs(2)).
func syncFileSystem(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync a folder: %w", err)
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("sync the file system of %s: %w", path, err)
	}
	return nil
}
