package native

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
)

// oomFile returns the file in which the kernel counts the processes of a container that it has
// killed for lack of memory, "" if there is none. The container's cgroup is that of its process.
func oomFile(pid uint32) string {
	paths, err := cgroups.ParseCgroupFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	if cgroups.IsCgroup2UnifiedMode() {
		return filepath.Join("/sys/fs/cgroup", paths[""], "memory.events")
	}
	root, err := cgroups.FindCgroupMountpoint("", "memory")
	if err != nil {
		return ""
	}
	return filepath.Join(root, paths["memory"], "memory.oom_control")
}

// oomKills returns the count, 0 if it cannot be read (cgroup-v2.rst, memory.events; memory.rst,
// memory.oom_control). The cgroup is there until the container's task is removed.
func oomKills(file string) uint64 {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && key == "oom_kill" {
			count, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return 0
			}
			return count
		}
	}
	return 0
}
