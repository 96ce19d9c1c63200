package cgroups

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestDetails(t *testing.T) {
	want := Details{
		UserCPU:     1500 * time.Millisecond,
		SystemCPU:   250 * time.Millisecond,
		CPUPeriod:   100 * time.Millisecond,
		CPUQuota:    50 * time.Millisecond,
		PeakMemory:  9000,
		MappedFile:  70,
		MemoryLimit: 65536,
		Threads:     5,
		MaxThreads:  0,
		Periods:     9, ThrottledPeriods: 4, Throttled: 3 * time.Millisecond, OOMKills: 2,
		Devices: []DeviceIO{
			{Major: 8, ReadBytes: 4096, Reads: 2}, {Major: 253, Minor: 1, WriteBytes: 512, Writes: 1},
		},
	}
	v1, v2 := want, want
	v1.MemoryFailures, v1.CPUShares = 3, 102
	v2.CPUShares = 2 + 262142*3/9999
	for name, c := range map[string]struct {
		version Version
		files   map[string]string
		want    Details
	}{
		"v1": {V1, map[string]string{
			"cpuacct.stat":                "user 150\nsystem 25\n",
			"cpu.cfs_period_us":           "100000\n",
			"cpu.cfs_quota_us":            "50000\n",
			"cpu.shares":                  "102\n",
			"memory.max_usage_in_bytes":   "9000\n",
			"memory.failcnt":              "3\n",
			"memory.stat":                 "mapped_file 1\ntotal_mapped_file 70\n",
			"memory.limit_in_bytes":       "65536\n",
			"memory.soft_limit_in_bytes":  "9223372036854771712\n",
			"memory.memsw.limit_in_bytes": "9223372036854771712\n",
			"pids.current":                "5\n",
			"pids.max":                    "max\n",
			"cpu.stat":                    "nr_periods 9\nnr_throttled 4\nthrottled_time 3000000\n",
			"memory.oom_control":          "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
			"blkio.throttle.io_service_bytes_recursive": "253:1 Read 0\n253:1 Write 512\n253:1 Total 512\n8:0 Read " +
				"4096\n8:0 Write 0\nTotal 4608\n",
			"blkio.throttle.io_serviced_recursive": "8:0 Read 2\n253:1 Write 1\nx:y Read 1\n8:0 Read\nTotal 3\n",
		}, v1},
		"v2": {V2, map[string]string{
			"cpu.stat": "usage_usec 1750000\nuser_usec 1500000\nsystem_usec 250000\nnr_periods 9\nnr_throttled 4\n" +
				"throttled_usec 3000\n",
			"cpu.max":         "50000 100000\n",
			"cpu.weight":      "4\n",
			"memory.peak":     "9000\n",
			"memory.stat":     "file_mapped 70\n",
			"memory.max":      "65536\n",
			"memory.low":      "0\n",
			"memory.swap.max": "max\n",
			"pids.current":    "5\n",
			"pids.max":        "max\n",
			"memory.events":   "oom 3\noom_kill 2\n",
			"io.stat": "253:1 wbytes=512 wios=1\n8:0 rbytes=4096 wbytes=0 rios=2 wios=0 dbytes=0 dios=0\nx:y " +
				"rios=1\n8:1\n",
		}, v2},
	} {
		t.Run(name, func(t *testing.T) {
			mount := t.TempDir()
			host := hierarchies{version: c.version, mounts: []string{mount}, controllers: map[string]string{}}
			for _, controller := range []string{"cpu", "cpuacct", "memory", "pids", "blkio", "io"} {
				host.controllers[controller] = mount
			}
			m := &Manager{host: host}
			if err := os.MkdirAll(filepath.Join(mount, "g"), 0o755); err != nil {
				t.Fatal(err)
			}
			for file, text := range c.files {
				if err := os.WriteFile(filepath.Join(mount, "g", file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := m.Details("g")
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%v\n got %+v\nwant %+v", err, got, c.want)
			}
			if _, err := m.Details("none"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a cgroup that is not there: %v", err)
			}
			if err := os.WriteFile(filepath.Join(mount, "g", "cpu.cfs_quota_us"), []byte("-1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(mount, "g", "cpu.max"), []byte("max 100000\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := m.Details("g"); err != nil || got.CPUQuota != 0 || got.CPUPeriod != 100*time.Millisecond {
				t.Errorf("no quota: %+v, %v", got, err)
			}
		})
	}
}
