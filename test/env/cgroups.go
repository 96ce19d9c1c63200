package env

import (
	"fmt"
	"os"
	"path/filepath"
)

// MakeCgroupRoot makes the parent of all pods' cgroups in every hierarchy. A kubelet needs the
// parent to exist.
func (l Layout) MakeCgroupRoot() error {
	hierarchies := []string{"/sys/fs/cgroup"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		hierarchies, _ = filepath.Glob("/sys/fs/cgroup/*")
	}
	for _, h := range hierarchies {
		if _, err := os.Stat(filepath.Join(h, "cgroup.procs")); err != nil {
			continue
		}
		dir := filepath.Join(h, l.CgroupRoot)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the cgroup root: %w", err)
		}
		// empty in a new cgroup of version 1
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			if text, err := os.ReadFile(filepath.Join(h, f)); err == nil {
				_ = os.WriteFile(filepath.Join(dir, f), text, 0o600)
			}
		}
	}
	return nil
}
