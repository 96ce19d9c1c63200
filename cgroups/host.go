package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
)

// Version is the version of a host's cgroup file systems.
type Version string

// The versions of cgroups.
const (
	// V1 has a hierarchy for every controller.
	V1 Version = "v1"
	// V2 has one hierarchy with all controllers.
	V2 Version = "v2"
	// Hybrid is V1 with a second, unified tree beside it. That tree has no limit that berth sets,
	// so only the layout differs from V1.
	Hybrid Version = "hybrid"
)

// The mount points of the unified tree.
const (
	unifiedMount = "/sys/fs/cgroup"
	hybridMount  = "/sys/fs/cgroup/unified"
)

// HostVersion returns this host's cgroup version.
func HostVersion() Version {
	switch {
	case cgroups.IsCgroup2UnifiedMode():
		return V2
	case cgroups.IsCgroup2HybridMode():
		return Hybrid
	}
	return V1
}

// SwapAccounting reports whether this host counts swap per cgroup. Only then can berth forbid swap
// to containers.
func SwapAccounting() bool {
	if HostVersion() != V2 {
		_, err := os.Stat(filepath.Join(unifiedMount, "memory", "memory.memsw.limit_in_bytes"))
		return err == nil
	}
	// The top cgroup has no memory.swap.max. Every cgroup below it has the file if swap is counted.
	found, _ := filepath.Glob(filepath.Join(unifiedMount, "*", "memory.swap.max"))
	return len(found) > 0
}

// hierarchies are the cgroup file systems. Every cgroup of berth has a directory in each of them.
type hierarchies struct {
	version Version
	// mounts are their mount points.
	mounts []string
	// controllers has the mount point of each controller.
	controllers map[string]string
}

// main returns the mount point that tells which cgroups there are, and what is in them.
func (h hierarchies) main() (mount string, ok bool) {
	for _, controller := range []string{"memory", "cpuacct", "cpu"} {
		if mount, ok = h.controllers[controller]; ok {
			return mount, true
		}
	}
	return "", false
}

// detect finds the host's hierarchies.
func detect() (hierarchies, error) {
	h := hierarchies{version: HostVersion(), controllers: map[string]string{}}
	if h.version == V2 {
		h.mounts = []string{unifiedMount}
		names, err := cgroups.GetAllSubsystems()
		if err != nil {
			return h, fmt.Errorf("list cgroup controllers: %w", err)
		}
		for _, name := range names {
			h.controllers[name] = unifiedMount
		}
		return h, nil
	}
	mounts, err := cgroups.GetCgroupMounts(true)
	if err != nil {
		return h, fmt.Errorf("list cgroup mounts: %w", err)
	}
	for _, m := range mounts {
		for _, name := range m.Subsystems {
			// If a hierarchy is mounted in several places, the shortest path is used.
			if old, ok := h.controllers[name]; !ok || len(m.Mountpoint) < len(old) {
				h.controllers[name] = m.Mountpoint
			}
		}
	}
	if len(h.controllers) == 0 {
		return h, fmt.Errorf("no cgroup file system is mounted")
	}
	for _, mount := range h.controllers {
		if !slices.Contains(h.mounts, mount) {
			h.mounts = append(h.mounts, mount)
		}
	}
	if h.version == Hybrid {
		h.mounts = append(h.mounts, hybridMount)
	}
	slices.Sort(h.mounts)
	return h, nil
}

// dirs returns the directories of a cgroup, one in each hierarchy. They need not exist.
func (h hierarchies) dirs(path string) []string {
	out := make([]string, len(h.mounts))
	for i, mount := range h.mounts {
		out[i] = filepath.Join(mount, path)
	}
	return out
}

// has reports whether the host has a controller.
func (h hierarchies) has(controller string) bool {
	_, ok := h.controllers[controller]
	return ok
}

// resources converts limits to the type that the library writes.
func (h hierarchies) resources(l Limits, pageSizes []string) *cgroups.Resources {
	r := &cgroups.Resources{
		SkipDevices:     true, // the runtime sets them
		SkipFreezeOnSet: true,
		CpuQuota:        l.CPUQuota,
		CpuPeriod:       l.CPUPeriod,
		Memory:          l.Memory,
	}
	if h.version == V2 {
		r.CpuWeight = cpuWeight(l.CPUShares)
	} else {
		r.CpuShares = l.CPUShares
	}
	if l.Memory == lifted && h.version == V2 {
		r.Memory = 0 // the library would lift the limit of swap, too
		r.Unified = map[string]string{"memory.max": "max"}
	}
	if l.Pids != 0 {
		r.PidsLimit = &l.Pids
	}
	if !h.has("hugetlb") {
		return r
	}
	amounts := map[string]uint64{}
	for size, amount := range l.HugePages {
		amounts[hugePageName(size)] = uint64(amount)
	}
	for _, size := range pageSizes {
		limit := amounts[size]
		if l.AnyHugePages {
			limit = 1 << 62 // on v1 the controller has no word for "no limit"
		}
		r.HugetlbLimit = append(r.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: size, Limit: limit})
	}
	return r
}

// cgroup names a cgroup for the library. For systemd the name is a slice and its parent slice.
func (l Layout) cgroup(path string, r *cgroups.Resources) *cgroups.Cgroup {
	if l.Driver != Systemd {
		return &cgroups.Cgroup{Path: path, Resources: r}
	}
	parent := filepath.Base(filepath.Dir(path))
	if strings.Trim(filepath.Dir(path), "/") == "" {
		parent = "-.slice"
	}
	return &cgroups.Cgroup{Systemd: true, Parent: parent, Name: filepath.Base(path), Resources: r}
}
