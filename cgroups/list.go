package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// List returns the sorted UIDs of all pods that have a cgroup in any hierarchy, also of pods that
// are partly removed. A hierarchy that cannot be read is an error.
func (m *Manager) List(ctx context.Context) ([]types.UID, error) {
	if !m.config.CgroupsPerQOS {
		return nil, nil
	}
	found := map[types.UID]bool{}
	for _, class := range QOSClasses() {
		for _, dir := range m.host.dirs(m.layout.ClassPath(class)) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			entries, err := os.ReadDir(dir)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list pod cgroups: %w", err)
			}
			for _, entry := range entries {
				if uid, ok := m.layout.PodUID(class, entry.Name()); ok && entry.IsDir() {
					found[uid] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}
