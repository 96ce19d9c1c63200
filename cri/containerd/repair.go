package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berthd/berth/cri/internal/shims"
)

// RemoveForgottenPaths removes what containerd made for sandboxes and containers and then forgot,
// because it was killed: network namespaces and bundles. It returns their number. Only a death of
// containerd leaves such paths, so RemoveForgottenPaths looks for them once in each of its lives.
// If the runtime is not containerd, or is in another mount namespace, there are none.
func (r *Runtime) RemoveForgottenPaths(ctx context.Context) (int, error) {
	found, err := r.lookForForgotten(ctx)
	if found.life.IsZero() {
		return 0, err
	}
	var removed int
	errs := []error{err} // what was found is removed all the same
	for _, kind := range []struct {
		name   string
		paths  []string
		remove func(string) error
	}{{"network namespace", found.netns, unmountNetns}, {"bundle", found.bundles, shims.RemoveBundle}} {
		for _, path := range kind.paths {
			if err := kind.remove(path); err != nil {
				err = fmt.Errorf("remove the %s %s, which containerd has forgotten: %w", kind.name, path, err)
				errs = append(errs, err)
				continue
			}
			r.cfg.Logger.Warn("containerd had forgotten a "+kind.name+"; it is removed now", "path", path)
			removed++
		}
	}
	failed := errors.Join(errs...)
	if failed == nil && !found.undecided {
		r.mu.Lock()
		r.repairedIn = found.life
		r.mu.Unlock()
	}
	return removed, failed
}

// ForgottenPaths returns the paths of what [Runtime.RemoveForgottenPaths] would remove.
func (r *Runtime) ForgottenPaths(ctx context.Context) ([]string, error) {
	found, err := r.lookForForgotten(ctx)
	return slices.Concat(found.netns, found.bundles), err
}

// leftovers are what one look found. If life is zero, there was nothing to look at.
type leftovers struct {
	// life is when this life of containerd began.
	life time.Time
	// netns and bundles have the paths. undecided says that there are others, which are too young
	// to decide about.
	netns, bundles []string
	undecided      bool
}

// lookForForgotten returns what it has found, also with an error: where one kind cannot be found,
// the other may be.
func (r *Runtime) lookForForgotten(ctx context.Context) (leftovers, error) {
	containerd, ok := shims.MountNamespaceOf(ctx, r.socket)
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return leftovers{}, fmt.Errorf("look for the agent's mount namespace: %w", err)
	}
	if !ok || own != containerd {
		return leftovers{}, nil
	}
	// Containerd makes its socket anew at each start, and all these files have times of one clock.
	info, err := os.Stat(r.socket)
	if errors.Is(err, fs.ErrNotExist) {
		return leftovers{}, nil // containerd is away: what it left is found when it is back
	}
	if err != nil {
		return leftovers{}, fmt.Errorf("look when the runtime began: %w", err)
	}
	r.mu.Lock()
	looked := r.repairedIn.Equal(info.ModTime())
	r.mu.Unlock()
	if looked {
		return leftovers{}, nil
	}
	config, err := r.criConfig(ctx)
	if err != nil || config.StateDir == "" {
		return leftovers{}, err
	}
	look := leftovers{life: info.ModTime()}
	return look, errors.Join(r.findNetns(ctx, &look, config), r.findBundles(ctx, &look, config))
}

// criConfig is the part of the CRI plugin's configuration that matters here. It is empty for
// another runtime.
type criConfig struct {
	StateDir                 string `json:"stateDir"`
	NetNSMountsUnderStateDir bool   `json:"netnsMountsUnderStateDir"`
}

func (r *Runtime) criConfig(ctx context.Context) (config criConfig, err error) {
	status, err := r.Status(ctx, true)
	if err != nil {
		return config, fmt.Errorf("ask the runtime for its configuration: %w", err)
	}
	if err := json.Unmarshal([]byte(status.Info["config"]), &config); err != nil {
		return criConfig{}, nil //nolint:nilerr // another runtime's configuration, or none
	}
	return config, nil
}

// netnsDir is the directory of the sandboxes' network namespaces.
func (c criConfig) netnsDir() string {
	if c.NetNSMountsUnderStateDir {
		return filepath.Join(c.StateDir, "netns")
	}
	return sharedNetnsDir
}

// bundlesDir is the directory of the bundles of the CRI's sandboxes and containers. In containerd's
// state directory it is beside the CRI plugin's own.
func (c criConfig) bundlesDir() string {
	return filepath.Join(filepath.Dir(c.StateDir), "io.containerd.runtime.v2.task", criNamespace)
}
