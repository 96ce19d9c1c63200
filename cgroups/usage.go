package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Usage is what a cgroup has used and uses, with all cgroups below it. What its controllers do not count is zero.
type Usage struct {
	// CPU is the time used so far. Periods and ThrottledPeriods are how many CFS periods there were and how many of them were cut short, Throttled for
	// how long altogether.
	CPU                       time.Duration
	Periods, ThrottledPeriods uint64
	Throttled                 time.Duration
	// Memory, in bytes, is all that is charged; WorkingSet is that without file pages that were not touched lately; RSS is anonymous memory, Cache are
	// file pages, Swap is what is swapped out.
	Memory, WorkingSet, RSS, Cache, Swap uint64
	// PageFaults, MajorPageFaults and OOMKills are counts so far.
	PageFaults, MajorPageFaults, OOMKills uint64
	// Processes is how many there are.
	Processes uint64
	// CPUPressure, MemoryPressure and IOPressure are nil where the kernel does not tell (cgroup v1, or without CONFIG_PSI).
	CPUPressure, MemoryPressure, IOPressure *Pressure
}

// Pressure is how much was stalled for want of a resource: of Some tasks, or of all that were not idle (kernel: accounting/psi.rst).
type Pressure struct{ Some, Full Stall }

// Stall has the shares of time, in per cent, over the last 10, 60 and 300 seconds, and the whole time so far.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Total                time.Duration
}

// PodUsage returns the usage of a pod's cgroup; fs.ErrNotExist where there is none, or none are made.
func (m *Manager) PodUsage(pod *corev1.Pod) (Usage, error) {
	path, err := m.podPath(pod)
	if err != nil {
		return Usage{}, fmt.Errorf("read the usage of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	u, err := m.Usage(path)
	if err != nil {
		return Usage{}, fmt.Errorf("read the usage of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return u, nil
}

// ContainerUsage returns the usage of a container of a pod, and its cgroup's path; fs.ErrNotExist where it has no cgroup.
func (m *Manager) ContainerUsage(pod *corev1.Pod, containerID string) (u Usage, path string, err error) {
	path, err = m.containerPath(pod, containerID)
	if err == nil {
		u, err = m.Usage(path)
	}
	if err != nil {
		return Usage{}, "", fmt.Errorf("read the usage of container %s of pod %s/%s: %w", containerID, pod.Namespace, pod.Name, err)
	}
	return u, path, nil
}

// Usage returns the usage of a cgroup by its path, relative to the mount points; fs.ErrNotExist where it is not there.
func (m *Manager) Usage(path string) (Usage, error) {
	d := counters{host: m.host, path: path}
	if !d.exists() {
		return Usage{}, fs.ErrNotExist
	}
	if m.host.version == V2 {
		return d.v2(), nil
	}
	return d.v1(), nil
}

// Process returns the id of one process of a cgroup or of one below it, false where there is none.
func (m *Manager) Process(path string) (pid int, ok bool) {
	for _, mount := range m.host.mounts {
		if pids := pidsBelow([]string{filepath.Join(mount, path)}); len(pids) > 0 {
			return pids[0], true
		}
	}
	return 0, false
}

// MemoryUsage returns how much memory, in bytes, a pod's cgroup holds that it cannot give back at once (its working set), or with a container's id that
// container's. It is fs.ErrNotExist where there is no such cgroup, or none are made.
func (m *Manager) MemoryUsage(pod *corev1.Pod, containerID string) (int64, error) {
	if containerID == "" {
		u, err := m.PodUsage(pod)
		return int64(u.WorkingSet), err
	}
	u, _, err := m.ContainerUsage(pod, containerID)
	return int64(u.WorkingSet), err
}

// podPath returns the path of a pod's cgroup.
func (m *Manager) podPath(pod *corev1.Pod) (string, error) {
	if err := validUID(pod.UID); err != nil {
		return "", err
	}
	if !m.config.CgroupsPerQOS {
		return "", fs.ErrNotExist
	}
	return m.layout.PodPath(pod.UID, QOSClass(pod)), nil
}

// containerPath finds a container's cgroup in its pod's: it is named by the id, with what runtimes put around it.
func (m *Manager) containerPath(pod *corev1.Pod, id string) (string, error) {
	parent, err := m.podPath(pod)
	if err != nil {
		return "", err
	}
	mount, ok := m.host.controllers["memory"]
	if !ok || id == "" {
		return "", fs.ErrNotExist
	}
	entries, err := os.ReadDir(filepath.Join(mount, parent))
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.IsDir() && strings.Contains(e.Name(), id) {
			return filepath.Join(parent, e.Name()), nil
		}
	}
	return "", fs.ErrNotExist
}

// counters reads a cgroup's files. A file that is not there, or cannot be read, counts as empty: not every kernel has every controller.
type counters struct {
	host hierarchies
	path string
}

func (c counters) exists() bool {
	for _, controller := range []string{"memory", "cpuacct", "cpu"} {
		if mount, ok := c.host.controllers[controller]; ok {
			_, err := os.Stat(filepath.Join(mount, c.path))
			return !errors.Is(err, fs.ErrNotExist)
		}
	}
	return false
}

// text returns the content of a controller's file.
func (c counters) text(controller, file string) string {
	mount, ok := c.host.controllers[controller]
	if !ok {
		return ""
	}
	data, err := os.ReadFile(filepath.Join(mount, c.path, file))
	if err != nil {
		return ""
	}
	return string(data)
}

// number returns the number that a file holds.
func (c counters) number(controller, file string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSpace(c.text(controller, file)), 10, 64)
	return n
}

// table returns the numbers of a file with a name and a number in each line.
func (c counters) table(controller, file string) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(c.text(controller, file)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if n, err := strconv.ParseUint(value, 10, 64); err == nil {
				out[name] = n
			}
		}
	}
	return out
}

func (c counters) v1() Usage {
	cpu, memory := c.table("cpu", "cpu.stat"), c.table("memory", "memory.stat")
	u := Usage{
		CPU:     time.Duration(c.number("cpuacct", "cpuacct.usage")),
		Periods: cpu["nr_periods"], ThrottledPeriods: cpu["nr_throttled"], Throttled: time.Duration(cpu["throttled_time"]),
		Memory: c.number("memory", "memory.usage_in_bytes"),
		RSS:    memory["total_rss"], Cache: memory["total_cache"], Swap: memory["total_swap"],
		PageFaults: memory["total_pgfault"], MajorPageFaults: memory["total_pgmajfault"],
		OOMKills:  c.table("memory", "memory.oom_control")["oom_kill"],
		Processes: c.number("pids", "pids.current"),
	}
	u.WorkingSet = u.Memory - min(u.Memory, memory["total_inactive_file"])
	return u
}

func (c counters) v2() Usage {
	cpu, memory := c.table("cpu", "cpu.stat"), c.table("memory", "memory.stat")
	u := Usage{
		CPU:     time.Duration(cpu["usage_usec"]) * time.Microsecond,
		Periods: cpu["nr_periods"], ThrottledPeriods: cpu["nr_throttled"], Throttled: time.Duration(cpu["throttled_usec"]) * time.Microsecond,
		Memory: c.number("memory", "memory.current"),
		RSS:    memory["anon"], Cache: memory["file"], Swap: c.number("memory", "memory.swap.current"),
		PageFaults: memory["pgfault"], MajorPageFaults: memory["pgmajfault"],
		OOMKills:    c.table("memory", "memory.events")["oom_kill"],
		Processes:   c.number("pids", "pids.current"),
		CPUPressure: pressure(c.text("cpu", "cpu.pressure")), MemoryPressure: pressure(c.text("memory", "memory.pressure")),
		IOPressure: pressure(c.text("io", "io.pressure")),
	}
	u.WorkingSet = u.Memory - min(u.Memory, memory["inactive_file"])
	return u
}

// pressure reads a file such as cpu.pressure; nil where there is nothing in it.
func pressure(text string) *Pressure {
	var p Pressure
	found := false
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		into := map[string]*Stall{"some": &p.Some, "full": &p.Full}[fields[0]]
		if into == nil {
			continue
		}
		found = true
		for _, field := range fields[1:] {
			name, value, _ := strings.Cut(field, "=")
			share, _ := strconv.ParseFloat(value, 64)
			switch name {
			case "avg10":
				into.Avg10 = share
			case "avg60":
				into.Avg60 = share
			case "avg300":
				into.Avg300 = share
			case "total":
				micro, _ := strconv.ParseInt(value, 10, 64)
				into.Total = time.Duration(micro) * time.Microsecond
			}
		}
	}
	if !found {
		return nil
	}
	return &p
}
