package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berthd/berth/agent/node/allocation"
	"github.com/berthd/berth/agent/node/podsapi"
	"github.com/berthd/berth/agent/node/shutdown"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/internal/atomicfile"
)

// removeRootFiles removes the files that an agent keeps beneath its root directory. Directories
// that plugins or a kubelet use, too, are removed only if they are empty then. It removes nothing
// beyond a mount point, and no directory of a pod that the agent did not empty itself, with the
// care that mounts need: the error wraps [errPodLeft] then.
func removeRootFiles(ctx context.Context, root string) error {
	if err := removeEmpty(filepath.Join(root, "pods")); err != nil {
		return fmt.Errorf("%w: %w", errPodLeft, err)
	}
	files, dirs := allocation.Files(root)
	files = append(files, filepath.Join(podsapi.Dir(root), podsapi.SocketName))
	dirs = append(dirs, podsapi.Dir(root))
	errs := []error{volumes.RemoveDir(ctx, filepath.Join(root, "berth"))}
	for _, path := range append(files, filepath.Join(root, shutdown.StateFile)) {
		errs = append(errs, atomicfile.Remove(path, atomicfile.OverCrash))
	}
	for _, name := range []string{
		"image_manager/pulling", "image_manager/pulled", "image_manager", "plugins", "plugins_registry", "seccomp",
	} {
		dirs = append(dirs, filepath.Join(root, name))
	}
	for _, dir := range dirs {
		_ = removeEmpty(dir) // files of others stay
	}
	return errors.Join(errs...)
}

// errPodLeft says that a pod's directory is not empty.
var errPodLeft = errors.New("something of a pod is left")

// removeEmpty removes a directory if it is empty. A missing directory is no error.
func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
