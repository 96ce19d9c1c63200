package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
)

// Version is what a host's cgroup file systems are.
type Version string

// The versions.
const (
	// V1 has a hierarchy for every controller.
	V1 Version = "v1"
	// V2 has one hierarchy with all controllers.
	V2 Version = "v2"
	// Hybrid is V1 with a second, unified tree beside it, which limits nothing that berth sets. Everything but the layout
	// is as with V1.
	Hybrid Version = "hybrid"
)

// Where the unified tree is mounted.
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

// SwapAccounting tells whether this host counts swap per cgroup, so that swap can be forbidden to containers.
func SwapAccounting() bool {
	if HostVersion() != V2 {
		_, err := os.Stat(filepath.Join(unifiedMount, "memory", "memory.memsw.limit_in_bytes"))
		return err == nil
	}
	// The top has no memory.swap.max, but every cgroup below it has one where swap is counted.
	found, _ := filepath.Glob(filepath.Join(unifiedMount, "*", "memory.swap.max"))
	return len(found) > 0
}

// hierarchies are the cgroup file systems in which every cgroup of berth has a directory.
type hierarchies struct {
	version Version
	// mounts are their mount points.
	mounts []string
	// controllers are the mount points by controller.
	controllers map[string]string
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
			// A hierarchy mounted in several places is used where its path is shortest.
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

// dirs returns the directories of a cgroup, one in each hierarchy, whether or not they exist.
func (h hierarchies) dirs(path string) []string {
	out := make([]string, len(h.mounts))
	for i, mount := range h.mounts {
		out[i] = filepath.Join(mount, path)
	}
	return out
}

// has tells whether the host has a controller.
func (h hierarchies) has(controller string) bool {
	_, ok := h.controllers[controller]
	return ok
}

// resources turns limits into what the library writes.
func (h hierarchies) resources(l Limits, pageSizes []string) *cgroups.Resources {
	r := &cgroups.Resources{
		SkipDevices:     true, // the runtime's business
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
	if l.Pids > 0 {
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
			limit = 1 << 62 // the controller takes no word for "no limit" on v1
		}
		r.HugetlbLimit = append(r.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: size, Limit: limit})
	}
	return r
}

// cgroup names a cgroup for the library. Systemd is told a slice and the slice above it.
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
