package cgroups

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// put writes a file and makes its directory.
func put(t *testing.T, text string, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Limits that are in force and not wanted are taken back, on both versions of cgroups.
func TestLift(t *testing.T) {
	for name, c := range map[string]struct {
		version            Version
		memory, pids       string
		wanted, want       Limits
		memoryLog, pidsLog bool
	}{
		"v2, limits of before": {
			version: V2, memory: "1073741824", pids: "1000", want: Limits{Memory: lifted, Pids: lifted},
			memoryLog: true, pidsLog: true,
		},
		"v2, no limits": {version: V2, memory: "max", pids: "max"},
		"v2, limits that are wanted": {
			version: V2, memory: "1073741824", pids: "1000", wanted: Limits{Memory: 1, Pids: 1},
			want: Limits{Memory: 1, Pids: 1},
		},
		"v2, only one is wanted": {
			version: V2, memory: "1073741824", pids: "1000", wanted: Limits{Memory: 1},
			want: Limits{Memory: 1, Pids: lifted}, pidsLog: true,
		},
		"v1, limits of before": {
			version: V1, memory: "1073741824", pids: "1000", want: Limits{Memory: lifted, Pids: lifted},
			memoryLog: true, pidsLog: true,
		},
		"v1, no limits": {version: V1, memory: "9223372036854771712", pids: "max"},
	} {
		t.Run(name, func(t *testing.T) {
			mount, file := t.TempDir(), "memory.max"
			if c.version == V1 {
				file = "memory.limit_in_bytes"
			}
			put(t, c.memory+"\n", mount, "kubepods", file)
			put(t, c.pids+"\n", mount, "kubepods", "pids.max")
			var log bytes.Buffer
			m := &Manager{
				layout: Layout{Driver: Cgroupfs}, log: slog.New(slog.NewTextHandler(&log, nil)),
				host: hierarchies{version: c.version, controllers: map[string]string{"memory": mount, "pids": mount}},
			}
			if got := m.lift(c.wanted); got.Memory != c.want.Memory || got.Pids != c.want.Pids {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if strings.Contains(log.String(), "memory") != c.memoryLog ||
				strings.Contains(log.String(), "processes") != c.pidsLog {
				t.Errorf("log %s", log.String())
			}
		})
	}
}

// What is lifted is written as no limit. On v2 the limit of swap stays as it is: the library would
// lift it, too.
func TestResourcesOfLiftedLimits(t *testing.T) {
	l := Limits{Memory: lifted, Pids: lifted, AnyHugePages: true}
	r := hierarchies{version: V2}.resources(l, nil)
	if r.Memory != 0 || r.Unified["memory.max"] != "max" || len(r.Unified) != 1 || r.PidsLimit == nil ||
		*r.PidsLimit != -1 {
		t.Errorf("v2: %+v", r)
	}
	if r := (hierarchies{version: V1}).resources(l, nil); r.Memory != -1 || r.Unified != nil ||
		r.PidsLimit == nil || *r.PidsLimit != -1 {
		t.Errorf("v1: %+v", r)
	}
}

// The limits of a slice's unit files and drop-ins are the administrator's.
func TestDeclares(t *testing.T) {
	for name, c := range map[string]struct {
		slice, file, text string
		want              bool
	}{
		"a drop-in":                   {"kubepods.slice", "kubepods.slice.d/limit.conf", "[Slice]\nMemoryMax = 4G\n", true},
		"a unit file":                 {"kubepods.slice", "kubepods.slice", "[Slice]\nMemoryMax=80%", true},
		"one for all slices":          {"kubepods.slice", "slice.d/a.conf", "MemoryMax=4G\n", true},
		"one for slices of a prefix":  {"a-b-kubepods.slice", "a-.slice.d/x.conf", "MemoryMax=4G\n", true},
		"one of another prefix":       {"a-b-kubepods.slice", "b-.slice.d/x.conf", "MemoryMax=4G\n", false},
		"another setting":             {"kubepods.slice", "kubepods.slice.d/limit.conf", "MemoryMaxScale=4\n", false},
		"no limit":                    {"kubepods.slice", "kubepods.slice.d/limit.conf", "MemoryMax=infinity\n", false},
		"the setting is reset":        {"kubepods.slice", "kubepods.slice.d/limit.conf", "MemoryMax=\n", false},
		"a comment":                   {"kubepods.slice", "kubepods.slice.d/limit.conf", "#MemoryMax=4G\n", false},
		"a file that is no drop-in":   {"kubepods.slice", "kubepods.slice.d/limit.txt", "MemoryMax=4G\n", false},
		"a drop-in of another slice":  {"kubepods.slice", "system.slice.d/limit.conf", "MemoryMax=4G\n", false},
		"the setting's name at v1":    {"kubepods.slice", "kubepods.slice.d/limit.conf", "MemoryLimit=4G\n", true},
		"the last of several in line": {"kubepods.slice", "kubepods.slice.d/limit.conf", "CPUWeight=5\nMemoryMax=4G", true},
	} {
		dir := t.TempDir()
		put(t, c.text, dir, "b", c.file)
		dirs := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
		if got := declares(dirs, c.slice, []string{"MemoryMax", "MemoryLimit"}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A manager without allocatable takes the limits of the one before it back, on this host.
func TestLimitsOfAnEarlierRunAreTakenBack(t *testing.T) {
	m := realManager(t, func(c *Config) {
		c.Allocatable = list{"cpu": "1", "memory": "1Gi", "pid": "1000"}.list()
	})
	if err := m.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	d, err := m.Details(m.layout.PodsPath())
	if err != nil || d.MemoryLimit != 1<<30 || m.host.has("pids") && d.MaxThreads != 1000 {
		t.Fatalf("limits %d, %d, %v", d.MemoryLimit, d.MaxThreads, err)
	}
	config := m.config
	config.Allocatable = nil
	next, err := New(config, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, err := next.Details(m.layout.PodsPath()); err != nil || d.MemoryLimit != 0 || d.MaxThreads != 0 {
		t.Errorf("limits %d, %d, %v", d.MemoryLimit, d.MaxThreads, err)
	}
}
