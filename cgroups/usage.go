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

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Usage is what a cgroup and all cgroups below it have used and use now. A value that no controller
// counts is zero.
type Usage struct {
	// CPU is the CPU time used so far.
	CPU time.Duration
	// All in bytes: Memory is everything that is charged to the cgroup, WorkingSet is Memory
	// without inactive file pages, RSS is anonymous memory, Cache is file pages, Swap is
	// swapped-out memory.
	Memory, WorkingSet, RSS, Cache, Swap uint64
	// SwapLimit is the most memory, in bytes, that the cgroup may have swapped out. On v1 that is
	// the limit of memory and swap together less that of memory. It is nil without a limit.
	SwapLimit *uint64
	// PageFaults and MajorPageFaults are counts so far.
	PageFaults, MajorPageFaults uint64
	// Processes is the number of processes.
	Processes uint64
	// CPUPressure, MemoryPressure and IOPressure are nil if the kernel does not report them (cgroup
	// v1, or without CONFIG_PSI).
	CPUPressure, MemoryPressure, IOPressure *Pressure
}

// Pressure is how much time tasks stalled because a resource was short: Some is for at least one
// task, Full for all tasks that were not idle (kernel: accounting/psi.rst).
type Pressure struct{ Some, Full Stall }

// Stall has the shares of time, in per cent, over the last 10, 60 and 300 seconds, and the total
// time so far.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Total                time.Duration
}

// Plus returns the usage of two cgroups together. It has no pressure and no limit of swap, which
// have no sum.
func (u Usage) Plus(v Usage) Usage {
	return Usage{
		CPU:             u.CPU + v.CPU,
		Memory:          u.Memory + v.Memory,
		WorkingSet:      u.WorkingSet + v.WorkingSet,
		RSS:             u.RSS + v.RSS,
		Cache:           u.Cache + v.Cache,
		Swap:            u.Swap + v.Swap,
		PageFaults:      u.PageFaults + v.PageFaults,
		MajorPageFaults: u.MajorPageFaults + v.MajorPageFaults,
		Processes:       u.Processes + v.Processes,
	}
}

// PodUsage returns the usage of a pod's cgroup. The error is fs.ErrNotExist if the pod has no
// cgroup, or if pods get no cgroups.
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

// ContainerUsage returns the usage of a container of a pod, and the path of its cgroup. The error
// is fs.ErrNotExist if the container has no cgroup.
func (m *Manager) ContainerUsage(pod *corev1.Pod, containerID string) (u Usage, path string, err error) {
	path, err = m.usualPath(pod, containerID)
	if err == nil {
		u, err = m.Usage(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if path, err = m.containerPath(pod, containerID); err == nil {
			u, err = m.Usage(path)
		}
	}
	if err != nil {
		return Usage{}, "", fmt.Errorf("read the usage of container %s of pod %s/%s: %w", containerID, pod.Namespace,
			pod.Name, err)
	}
	return u, path, nil
}

// Usage returns the usage of a cgroup. path is relative to the mount points. The error is
// fs.ErrNotExist if the cgroup does not exist.
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

// Processes returns the sorted PIDs of the processes of a cgroup and of all cgroups below it. It
// leaves out processes of another PID namespace.
func (m *Manager) Processes(path string) []int {
	mount, ok := m.host.main()
	if !ok {
		return nil
	}
	return pidsBelow([]string{filepath.Join(mount, path)})
}

// Process returns the PID of one process of a cgroup, or of a cgroup below it if the cgroup itself
// has none. It returns false if there is no process.
func (m *Manager) Process(path string) (pid int, ok bool) {
	mount, ok := m.host.main()
	if !ok {
		return 0, false
	}
	return firstProcess(filepath.Join(mount, path))
}

// firstProcess looks for a process in a cgroup's directory, and then in those below it. It takes
// the smallest PID of the first cgroup with a process: that of a container's first process.
func firstProcess(dir string) (pid int, ok bool) {
	text, err := readFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return 0, false
	}
	for field := range strings.FieldsSeq(text) {
		if n, err := strconv.Atoi(field); err == nil && n > 0 && (!ok || n < pid) {
			pid, ok = n, true
		}
	}
	if ok {
		return pid, true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, false
	}
	for _, e := range entries {
		if e.IsDir() {
			if pid, ok = firstProcess(filepath.Join(dir, e.Name())); ok {
				return pid, true
			}
		}
	}
	return 0, false
}

// MemoryUsage returns the working set, in bytes, of a pod's cgroup, or of a container's if
// containerID is given. The working set is the memory that the cgroup cannot give back at once. The
// error is fs.ErrNotExist if there is no such cgroup, or if pods get no cgroups.
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

// usualPath returns the path that containerd gives to a container's cgroup. It does not look for
// the cgroup.
func (m *Manager) usualPath(pod *corev1.Pod, id string) (string, error) {
	parent, err := m.podPath(pod)
	switch {
	case err != nil:
		return "", err
	case id == "":
		return "", fs.ErrNotExist
	case m.layout.Driver == Systemd:
		return filepath.Join(parent, "cri-containerd-"+id+".scope"), nil
	}
	return filepath.Join(parent, id), nil
}

// containerPath finds a container's cgroup in its pod's cgroup, or where the runtime makes the
// cgroups of containers if pods have none. The name of the cgroup contains the container's id;
// runtimes add a prefix or suffix.
func (m *Manager) containerPath(pod *corev1.Pod, id string) (string, error) {
	mount, ok := m.host.controllers["memory"]
	if !ok || id == "" {
		return "", fs.ErrNotExist
	}
	parents, err := m.parents(pod, mount)
	if err != nil {
		return "", err
	}
	for _, parent := range parents {
		entries, err := os.ReadDir(filepath.Join(mount, parent))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		for _, e := range entries {
			if e.IsDir() && strings.Contains(e.Name(), id) {
				return filepath.Join(parent, e.Name()), nil
			}
		}
	}
	return "", fs.ErrNotExist
}

// parents returns the cgroups below which a pod's containers may be: the pod's own, or without
// cgroups of pods the root and those right below it. There runtimes make their containers' cgroups,
// for example in system.slice.
func (m *Manager) parents(pod *corev1.Pod, mount string) ([]string, error) {
	if m.config.CgroupsPerQOS {
		path, err := m.podPath(pod)
		return []string{path}, err
	}
	entries, err := os.ReadDir(mount)
	if err != nil {
		return nil, err
	}
	parents := []string{"/"}
	for _, e := range entries {
		if e.IsDir() {
			parents = append(parents, filepath.Join("/", e.Name()))
		}
	}
	return parents, nil
}

// counters reads the files of a cgroup. A file that does not exist or cannot be read counts as
// empty, because not every kernel has every controller.
type counters struct {
	host hierarchies
	path string
}

func (c counters) exists() bool {
	mount, ok := c.host.main()
	if !ok {
		return false
	}
	var st unix.Stat_t
	return !errors.Is(unix.Stat(filepath.Join(mount, c.path), &st), unix.ENOENT)
}

// text returns the content of a controller's file.
func (c counters) text(controller, file string) string {
	mount, ok := c.host.controllers[controller]
	if !ok {
		return ""
	}
	text, err := readFile(filepath.Join(mount, c.path, file))
	if err != nil {
		return ""
	}
	return text
}

// number returns the number in a file.
func (c counters) number(controller, file string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSpace(c.text(controller, file)), 10, 64)
	return n
}

// table reads a file that has a name and a number in each line. It sets the numbers of these names,
// and leaves the others alone.
func (c counters) table(controller, file string, into map[string]*uint64) {
	for line := range strings.Lines(c.text(controller, file)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if to := into[name]; to != nil {
			*to, _ = strconv.ParseUint(value, 10, 64)
		}
	}
}

func (c counters) v1() Usage {
	var u Usage
	var inactive uint64
	c.table("memory", "memory.stat", map[string]*uint64{
		"total_rss": &u.RSS, "total_cache": &u.Cache, "total_swap": &u.Swap, "total_pgfault": &u.PageFaults,
		"total_pgmajfault": &u.MajorPageFaults, "total_inactive_file": &inactive,
	})
	u.CPU = time.Duration(c.number("cpuacct", "cpuacct.usage"))
	u.Memory = c.number("memory", "memory.usage_in_bytes")
	u.WorkingSet = u.Memory - min(u.Memory, inactive)
	u.Processes = c.number("pids", "pids.current")
	both, isLimited := c.bound("memory", "memory.memsw.limit_in_bytes")
	memory, memoryIsLimited := c.bound("memory", "memory.limit_in_bytes")
	if isLimited && memoryIsLimited {
		u.SwapLimit = new(both - min(both, memory))
	}
	return u
}

func (c counters) v2() Usage {
	var u Usage
	var inactive, micros uint64
	c.table("cpu", "cpu.stat", map[string]*uint64{"usage_usec": &micros})
	c.table("memory", "memory.stat", map[string]*uint64{
		"anon": &u.RSS, "file": &u.Cache, "pgfault": &u.PageFaults, "pgmajfault": &u.MajorPageFaults,
		"inactive_file": &inactive,
	})
	u.CPU = time.Duration(micros) * time.Microsecond
	u.Memory = c.number("memory", "memory.current")
	u.WorkingSet = u.Memory - min(u.Memory, inactive)
	u.Swap = c.number("memory", "memory.swap.current")
	if limit, ok := c.bound("memory", "memory.swap.max"); ok {
		u.SwapLimit = &limit
	}
	u.Processes = c.number("pids", "pids.current")
	u.CPUPressure = pressure(c.text("cpu", "cpu.pressure"))
	u.MemoryPressure = pressure(c.text("memory", "memory.pressure"))
	u.IOPressure = pressure(c.text("io", "io.pressure"))
	return u
}

// pressure reads the text of a file such as cpu.pressure. It returns nil if the text has no values.
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
