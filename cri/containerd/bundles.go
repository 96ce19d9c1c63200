package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/berthd/berth/cri/internal/classify"
)

// findBundles finds the bundles that nobody will remove. Some were being removed when containerd
// was killed: containerd has renamed them to begin with a dot and does not look at them again (seen
// on 2.4.2). For others containerd has neither a container nor a task, and no process works in
// them. Only bundles from an earlier life of containerd count.
func (r *Runtime) findBundles(ctx context.Context, look *leftovers, config criConfig) error {
	// Mounts, and the directories that processes work in, have no symbolic links in their paths.
	dir, err := filepath.EvalSymlinks(config.bundlesDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var entries []fs.DirEntry
	if err == nil {
		entries, err = os.ReadDir(dir)
	}
	if err != nil {
		return fmt.Errorf("look for bundles that containerd has forgotten: %w", err)
	}
	var worked map[string]bool
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || !info.ModTime().Before(look.life) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if !strings.HasPrefix(e.Name(), ".") {
			known, err := r.knows(ctx, e.Name())
			if err != nil {
				return err
			}
			if known {
				continue
			}
			if worked == nil { // nobody starts to work in a bundle of an earlier life
				if worked, err = workingDirectories(); err != nil {
					return err
				}
			}
			if worked[path] {
				continue
			}
		}
		look.bundles = append(look.bundles, path)
	}
	return nil
}

// knows reports whether containerd has a container or a task with this ID.
func (r *Runtime) knows(ctx context.Context, id string) (bool, error) {
	ctx = withNamespace(ctx)
	for _, ask := range []func() error{
		func() error {
			_, err := containersapi.NewContainersClient(r.conn).Get(ctx, &containersapi.GetContainerRequest{ID: id})
			return err
		},
		func() error {
			_, err := tasksapi.NewTasksClient(r.conn).Get(ctx, &tasksapi.GetRequest{ContainerID: id})
			return err
		},
	} {
		err := ask()
		if err == nil {
			return true, nil
		}
		if !errdefs.IsNotFound(errgrpc.ToNative(err)) {
			return false, fmt.Errorf("ask containerd for container %s: %w", id, classify.Error("get_container", err))
		}
	}
	return false, nil
}

// workingDirectories returns the working directories of all processes. A shim has its bundle.
func workingDirectories() (map[string]bool, error) {
	processes, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		return nil, fmt.Errorf("look which bundles processes work in: %w", err)
	}
	out := map[string]bool{}
	for _, p := range processes {
		if cwd, err := os.Readlink(p); err == nil {
			out[cwd] = true
		}
	}
	return out, nil
}
