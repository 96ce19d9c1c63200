package cgroups

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestMemoryUsage(t *testing.T) {
	for name, c := range map[string]struct {
		version           Version
		usage, stat, file string
	}{
		"v1": {V1, "3000\n", "inactive_file 1\ntotal_inactive_file 1000\n", "memory.usage_in_bytes"},
		"v2": {V2, "3000\n", "anon 5\ninactive_file 1000\n", "memory.current"},
	} {
		t.Run(name, func(t *testing.T) {
			mount := t.TempDir()
			m := &Manager{
				config: Config{CgroupsPerQOS: true}, layout: Layout{Driver: Cgroupfs},
				host: hierarchies{version: c.version, controllers: map[string]string{"memory": mount}},
			}
			pod := burstable("u1")
			dir := filepath.Join(mount, "kubepods/burstable/podu1")
			for at, usage := range map[string]string{
				dir: c.usage, filepath.Join(dir, "cri-containerd-abc.scope"): "1500\n",
			} {
				if err := os.MkdirAll(at, 0o755); err != nil {
					t.Fatal(err)
				}
				for file, text := range map[string]string{c.file: usage, "memory.stat": c.stat} {
					if err := os.WriteFile(filepath.Join(at, file), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			for id, want := range map[string]int64{"": 2000, "abc": 500} {
				if got, err := m.MemoryUsage(pod, id); err != nil || got != want {
					t.Errorf("%q: %d, %v, want %d", id, got, err, want)
				}
			}
			for _, missing := range []*corev1.Pod{burstable("u2"), burstable("../u1")} {
				if _, err := m.MemoryUsage(missing, ""); err == nil {
					t.Errorf("pod %s has a usage", missing.UID)
				}
			}
			if _, err := m.MemoryUsage(pod, "xyz"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a container that is not there: %v", err)
			}
		})
	}
}

// Without cgroups of pods, a container's cgroup is found where the runtime makes it.
func TestContainerUsageWithoutCgroupsOfPods(t *testing.T) {
	for _, path := range []string{"/abc", "/k8s.io/abc", "/system.slice/cri-containerd-abc.scope"} {
		m := &Manager{layout: Layout{Driver: Cgroupfs}, host: host(t, map[string]string{
			path + "/memory.usage_in_bytes":                  "3000\n",
			"system.slice/other.scope/memory.usage_in_bytes": "1\n",
			"memory.usage_in_bytes":                          "9\n",
		})}
		u, at, err := m.ContainerUsage(burstable("u1"), "abc")
		if err != nil || u.Memory != 3000 || at != path {
			t.Errorf("of %s: %d bytes of %q, %v", path, u.Memory, at, err)
		}
		if _, _, err := m.ContainerUsage(burstable("u1"), "xyz"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a container that is not there: %v", err)
		}
		if _, err := m.PodUsage(burstable("u1")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the pod has a cgroup: %v", err)
		}
	}
}

// Each number of a sum is the sum of both.
func TestPlus(t *testing.T) {
	var one, two Usage
	for i, v := range []reflect.Value{reflect.ValueOf(&one).Elem(), reflect.ValueOf(&two).Elem()} {
		for n := range v.NumField() {
			switch f := v.Field(n); f.Kind() {
			case reflect.Uint64:
				f.SetUint(uint64((i + 1) * (n + 1)))
			case reflect.Int64:
				f.SetInt(int64((i + 1) * (n + 1)))
			}
		}
	}
	sum := one.Plus(one)
	if !reflect.DeepEqual(sum, two) {
		t.Errorf("%+v twice is %+v", one, sum)
	}
}

// host returns a host with one hierarchy of all controllers, which has these files.
func host(t *testing.T, files map[string]string) hierarchies {
	t.Helper()
	mount := t.TempDir()
	for path, text := range files {
		path = filepath.Join(mount, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := hierarchies{version: V1, mounts: []string{mount}, controllers: map[string]string{}}
	for _, controller := range []string{"cpu", "cpuacct", "memory", "pids"} {
		h.controllers[controller] = mount
	}
	return h
}

func TestUsageOfV1(t *testing.T) {
	m := &Manager{host: host(t, map[string]string{
		"g/cpuacct.usage": "5000000\n", "g/memory.usage_in_bytes": "3000\n", "g/pids.current": "4\n",
		"g/memory.stat": "cache 1\nrss 2\ntotal_cache 30\ntotal_rss 20\ntotal_swap 7\ntotal_pgfault 8\n" +
			"total_pgmajfault 9\ntotal_inactive_file 1000",
	})}
	want := Usage{
		CPU: 5 * time.Millisecond, Memory: 3000, WorkingSet: 2000, RSS: 20, Cache: 30, Swap: 7, PageFaults: 8,
		MajorPageFaults: 9, Processes: 4,
	}
	if got, err := m.Usage("g"); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// A limit of swap is told where the kernel has one, also one of nothing.
func TestSwapLimit(t *testing.T) {
	none := "9223372036854771712\n"
	for name, c := range map[string]struct {
		version Version
		files   map[string]string
		want    *uint64
	}{
		"v1": {V1, map[string]string{
			"memory.limit_in_bytes": "100\n", "memory.memsw.limit_in_bytes": "150\n",
		}, new(uint64(50))},
		"v1, nothing": {V1, map[string]string{
			"memory.limit_in_bytes": "100\n", "memory.memsw.limit_in_bytes": "100\n",
		}, new(uint64(0))},
		"v1, no limit": {V1, map[string]string{
			"memory.limit_in_bytes": "100\n", "memory.memsw.limit_in_bytes": none,
		}, nil},
		"v1, swap is not counted": {V1, map[string]string{"memory.limit_in_bytes": "100\n"}, nil},
		"v2":                      {V2, map[string]string{"memory.swap.max": "50\n"}, new(uint64(50))},
		"v2, nothing":             {V2, map[string]string{"memory.swap.max": "0\n"}, new(uint64(0))},
		"v2, no limit":            {V2, map[string]string{"memory.swap.max": "max\n"}, nil},
		"v2, swap is not counted": {V2, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"g/pids.current": "1\n"}
			for file, text := range c.files {
				files["g/"+file] = text
			}
			m := &Manager{host: host(t, files)}
			m.host.version = c.version
			got, err := m.Usage("g")
			if err != nil || !reflect.DeepEqual(got.SwapLimit, c.want) {
				t.Errorf("%v, %v, want %v", got.SwapLimit, err, c.want)
			}
		})
	}
}

// A container's cgroup is found by the name that containerd gives it, and by those of others.
func TestContainerUsageByName(t *testing.T) {
	for _, c := range []struct {
		driver Driver
		name   string
	}{
		{Cgroupfs, "abc"},
		{Cgroupfs, "crio-abc"},
		{Systemd, "cri-containerd-abc.scope"},
		{Systemd, "crio-abc.scope"},
	} {
		m := &Manager{config: Config{CgroupsPerQOS: true}, layout: Layout{Driver: c.driver}}
		pod := burstable("u1")
		parent := m.layout.PodPath(pod.UID, QOSClass(pod))
		m.host = host(t, map[string]string{filepath.Join(parent, c.name, "memory.usage_in_bytes"): "7"})
		u, path, err := m.ContainerUsage(pod, "abc")
		if err != nil || u.Memory != 7 || path != filepath.Join(parent, c.name) {
			t.Errorf("%s %s: %+v, %s, %v", c.driver, c.name, u, path, err)
		}
		for _, id := range []string{"", "xyz"} {
			if _, _, err := m.ContainerUsage(pod, id); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s %s, container %q: %v", c.driver, c.name, id, err)
			}
		}
	}
}

func TestProcesses(t *testing.T) {
	m := &Manager{host: host(t, map[string]string{
		"pod/cgroup.procs": "", "pod/a/cgroup.procs": "0\n", "pod/b/cgroup.procs": "34\n12\n",
		"pod/b/inner/cgroup.procs": "5\n", "empty/cgroup.procs": "",
	})}
	if got := m.Processes("pod"); !slices.Equal(got, []int{5, 12, 34}) {
		t.Errorf("processes %v", got)
	}
	for path, want := range map[string]int{"pod": 12, "pod/b/inner": 5, "empty": 0, "none": 0} {
		if pid, ok := m.Process(path); pid != want || ok != (want > 0) {
			t.Errorf("%s: process %d, %v, want %d", path, pid, ok, want)
		}
	}
}

// A file may be larger than what is read at once.
func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	want := strings.Repeat("x", 2*readSize+1)
	if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readFile(path); err != nil || got != want {
		t.Errorf("%d bytes, %v, want %d", len(got), err, len(want))
	}
	if _, err := readFile(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
