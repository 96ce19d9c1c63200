package remote

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
)

// RemoveForgotten removes what containerd made for sandboxes and containers and then forgot, because it was killed: network namespaces and bundles. It returns
// their number. Since only a death of containerd leaves such, they are looked for once in each of its lives. Where the runtime is no containerd, or is in
// another mount namespace, there are none.
func (r *Runtime) RemoveForgotten(ctx context.Context) (int, error) {
	found, err := r.lookForForgotten(ctx)
	if err != nil || found.life.IsZero() {
		return 0, err
	}
	var removed int
	var errs []error
	for _, kind := range []struct {
		name   string
		paths  []string
		remove func(string) error
	}{{"network namespace", found.netns, unmountNetns}, {"bundle", found.bundles, removeBundle}} {
		for _, path := range kind.paths {
			if err := kind.remove(path); err != nil {
				errs = append(errs, fmt.Errorf("remove the %s %s, which containerd has forgotten: %w", kind.name, path, err))
				continue
			}
			r.cfg.Logger.Warn("containerd had forgotten a "+kind.name+"; it is removed now", "path", path)
			removed++
		}
	}
	if len(errs) == 0 && !found.undecided {
		r.mu.Lock()
		r.lookedIn = found.life
		r.mu.Unlock()
	}
	return removed, errors.Join(errs...)
}

// Forgotten returns the paths of what [Runtime.RemoveForgotten] would remove.
func (r *Runtime) Forgotten(ctx context.Context) ([]string, error) {
	found, err := r.lookForForgotten(ctx)
	return slices.Concat(found.netns, found.bundles), err
}

// leftovers are what one look found. A zero life says that there was nothing to look at.
type leftovers struct {
	// life is when this life of containerd began.
	life time.Time
	// netns and bundles have the paths; undecided says that there is more, which is too young to tell.
	netns, bundles []string
	undecided      bool
}

func (r *Runtime) lookForForgotten(ctx context.Context) (leftovers, error) {
	socket, err := socketPath(r.cfg.Endpoint)
	if err != nil {
		return leftovers{}, err
	}
	containerd, ok := mountNamespaceOf(ctx, socket)
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return leftovers{}, fmt.Errorf("look for the agent's mount namespace: %w", err)
	}
	if !ok || own != containerd {
		return leftovers{}, nil
	}
	// Containerd makes its socket anew whenever it starts, and the times of all these files are of one clock.
	info, err := os.Stat(socket)
	if errors.Is(err, fs.ErrNotExist) {
		return leftovers{}, nil // it is away: what it left is found when it is back
	}
	if err != nil {
		return leftovers{}, fmt.Errorf("look when the runtime began: %w", err)
	}
	r.mu.Lock()
	looked := r.lookedIn.Equal(info.ModTime())
	r.mu.Unlock()
	if looked {
		return leftovers{}, nil
	}
	config, err := r.criConfig(ctx)
	if err != nil || config.StateDir == "" {
		return leftovers{}, err
	}
	look := leftovers{life: info.ModTime()}
	if err := r.findNetns(ctx, &look, config); err != nil {
		return leftovers{}, err
	}
	if err := r.findBundles(ctx, &look, config); err != nil {
		return leftovers{}, err
	}
	return look, nil
}

// criConfig is what matters here of the configuration that containerd's CRI plugin shows. It is empty for another runtime.
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

// netnsDir is the folder of the sandboxes' network namespaces.
func (c criConfig) netnsDir() string {
	if c.NetNSMountsUnderStateDir {
		return filepath.Join(c.StateDir, "netns")
	}
	return sharedNetnsDir
}

// bundlesDir is the folder of the bundles of the CRI's sandboxes and containers: beside the CRI plugin's own in containerd's state.
func (c criConfig) bundlesDir() string {
	return filepath.Join(filepath.Dir(c.StateDir), "io.containerd.runtime.v2.task", criNamespace)
}
