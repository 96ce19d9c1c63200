package shims

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/mounttable"
)

// RemoveBundle removes a bundle. It first unmounts what is mounted in the bundle. A symbolic link
// leads to no bundle, but the path of its directory may have some.
func RemoveBundle(path string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	path = filepath.Join(dir, filepath.Base(path))
	mounts, err := mounttable.Beneath(path)
	if err != nil {
		return fmt.Errorf("look for mounts: %w", err)
	}
	for i := len(mounts) - 1; i >= 0; i-- {
		if err := unix.Unmount(mounts[i].Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", mounts[i].Mountpoint, err)
		}
	}
	left, err := mounttable.Beneath(path)
	if err != nil {
		return fmt.Errorf("look for mounts: %w", err)
	}
	if len(left) > 0 {
		return fmt.Errorf("%s is mounted again", left[0].Mountpoint)
	}
	return os.RemoveAll(path)
}
