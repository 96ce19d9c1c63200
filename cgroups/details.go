package cgroups

import (
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Details has the values of a cgroup that [Usage] does not have. They take many more files to read,
// so only callers that need everything ask for them. A value that no controller counts is zero.
type Details struct {
	// UserCPU and SystemCPU are the two parts of the CPU time used so far.
	UserCPU, SystemCPU time.Duration
	// Periods is the number of CFS periods so far; in ThrottledPeriods of them the cgroup was
	// throttled, for Throttled in total. OOMKills is how often the kernel killed a process for want
	// of memory.
	Periods, ThrottledPeriods uint64
	Throttled                 time.Duration
	OOMKills                  uint64
	// CPUPeriod and CPUQuota are the CFS limit; the quota is 0 if there is no limit. CPUShares is
	// the weight in the unit of cgroup v1.
	CPUPeriod, CPUQuota time.Duration
	CPUShares           uint64
	// PeakMemory is the most memory, in bytes, that the cgroup ever held. MemoryFailures counts how
	// often the cgroup reached its limit (v1 only). MappedFile is the file pages, in bytes, that
	// are mapped into some process.
	PeakMemory, MemoryFailures, MappedFile uint64
	// MemoryLimit, MemoryReservation and SwapLimit are in bytes; 0 means no limit. On v1 SwapLimit
	// is the limit of memory and swap together.
	MemoryLimit, MemoryReservation, SwapLimit uint64
	// Threads is the number of threads. MaxThreads is the limit of that number; 0 means no limit.
	Threads, MaxThreads uint64
	// Devices are the block devices that the cgroup has read or written.
	Devices []DeviceIO
}

// DeviceIO is what was read from a block device and written to it so far, in bytes and in
// operations.
type DeviceIO struct {
	Major, Minor          uint64
	ReadBytes, WriteBytes uint64
	Reads, Writes         uint64
}

const (
	// userHZ is the unit of cpuacct.stat: the ticks of one second. It is 100 on every architecture
	// that runs Linux containers (kernel: USER_HZ).
	userHZ = 100
	// noLimit is the least number that means "no limit". v1 has no word for it and writes the
	// greatest number of pages.
	noLimit = 1 << 62
)

// Details returns the details of a cgroup. path is relative to the mount points. The error is
// fs.ErrNotExist if the cgroup does not exist.
func (m *Manager) Details(path string) (Details, error) {
	c := counters{host: m.host, path: path}
	if !c.exists() {
		return Details{}, fs.ErrNotExist
	}
	d := c.detailsV1
	if m.host.version == V2 {
		d = c.detailsV2
	}
	out := d()
	out.Threads, out.MaxThreads = c.number("pids", "pids.current"), c.limit("pids", "pids.max")
	return out, nil
}

// limit returns the number in a file, or 0 if the number means "no limit".
func (c counters) limit(controller, file string) uint64 {
	n, _ := c.bound(controller, file)
	return n
}

// bound returns the limit in a file. It returns false if the file does not exist or has no limit: a
// limit of 0 is one, too.
func (c counters) bound(controller, file string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(c.text(controller, file)), 10, 64)
	if err != nil || n >= noLimit {
		return 0, false
	}
	return n, true
}

// micro parses a number of microseconds. A negative number gives 0.
func micro(text string) time.Duration {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(time.Microsecond) {
		return 0
	}
	return time.Duration(n) * time.Microsecond
}

func (c counters) detailsV1() Details {
	d := Details{
		CPUPeriod:         micro(c.text("cpu", "cpu.cfs_period_us")),
		CPUQuota:          micro(c.text("cpu", "cpu.cfs_quota_us")),
		CPUShares:         c.number("cpu", "cpu.shares"),
		PeakMemory:        c.number("memory", "memory.max_usage_in_bytes"),
		MemoryFailures:    c.number("memory", "memory.failcnt"),
		MemoryLimit:       c.limit("memory", "memory.limit_in_bytes"),
		MemoryReservation: c.limit("memory", "memory.soft_limit_in_bytes"),
		SwapLimit:         c.limit("memory", "memory.memsw.limit_in_bytes"),
	}
	var user, system, throttled uint64
	c.table("cpuacct", "cpuacct.stat", map[string]*uint64{"user": &user, "system": &system})
	d.UserCPU = time.Duration(user) * (time.Second / userHZ)
	d.SystemCPU = time.Duration(system) * (time.Second / userHZ)
	c.table("cpu", "cpu.stat", map[string]*uint64{
		"nr_periods": &d.Periods, "nr_throttled": &d.ThrottledPeriods, "throttled_time": &throttled,
	})
	d.Throttled = time.Duration(throttled)
	c.table("memory", "memory.stat", map[string]*uint64{"total_mapped_file": &d.MappedFile})
	c.table("memory", "memory.oom_control", map[string]*uint64{"oom_kill": &d.OOMKills})
	devices := devices{}
	for line := range strings.Lines(c.text("blkio", "blkio.throttle.io_service_bytes_recursive")) {
		devices.v1(line, func(d *DeviceIO) (read, write *uint64) { return &d.ReadBytes, &d.WriteBytes })
	}
	for line := range strings.Lines(c.text("blkio", "blkio.throttle.io_serviced_recursive")) {
		devices.v1(line, func(d *DeviceIO) (read, write *uint64) { return &d.Reads, &d.Writes })
	}
	d.Devices = devices.sorted()
	return d
}

func (c counters) detailsV2() Details {
	quota, period, _ := strings.Cut(strings.TrimSpace(c.text("cpu", "cpu.max")), " ")
	d := Details{
		CPUPeriod:         micro(period),
		CPUQuota:          micro(quota),
		CPUShares:         sharesOf(c.number("cpu", "cpu.weight")),
		PeakMemory:        c.number("memory", "memory.peak"),
		MemoryLimit:       c.limit("memory", "memory.max"),
		MemoryReservation: c.limit("memory", "memory.low"),
		SwapLimit:         c.limit("memory", "memory.swap.max"),
	}
	var user, system, throttled uint64
	c.table("cpu", "cpu.stat", map[string]*uint64{
		"user_usec": &user, "system_usec": &system, "nr_periods": &d.Periods, "nr_throttled": &d.ThrottledPeriods,
		"throttled_usec": &throttled,
	})
	d.UserCPU, d.SystemCPU = time.Duration(user)*time.Microsecond, time.Duration(system)*time.Microsecond
	d.Throttled = time.Duration(throttled) * time.Microsecond
	c.table("memory", "memory.stat", map[string]*uint64{"file_mapped": &d.MappedFile})
	c.table("memory", "memory.events", map[string]*uint64{"oom_kill": &d.OOMKills})
	devices := devices{}
	for line := range strings.Lines(c.text("io", "io.stat")) {
		devices.v2(line)
	}
	d.Devices = devices.sorted()
	return d
}

// sharesOf converts a cgroup v2 weight (1 to 10000) to v1's shares (2 to 262144), linearly
// (KEP-2254). 0 stays 0.
func sharesOf(weight uint64) uint64 {
	if weight == 0 {
		return 0
	}
	return 2 + (weight-1)*262142/9999
}

// devices collects the values of block devices by device name ("MAJOR:MINOR").
type devices map[string]*DeviceIO

// of returns the device with this name, or nil if the name is not valid.
func (all devices) of(name string) *DeviceIO {
	if d, ok := all[name]; ok {
		return d
	}
	major, minor, ok := strings.Cut(name, ":")
	var d DeviceIO
	var errMajor, errMinor error
	d.Major, errMajor = strconv.ParseUint(major, 10, 64)
	d.Minor, errMinor = strconv.ParseUint(minor, 10, 64)
	if !ok || errMajor != nil || errMinor != nil {
		return nil
	}
	all[name] = &d
	return &d
}

// v1 reads a line such as "8:0 Read 4096".
func (all devices) v1(line string, of func(*DeviceIO) (read, write *uint64)) {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return // the sum of all devices
	}
	d := all.of(fields[0])
	n, err := strconv.ParseUint(fields[2], 10, 64)
	if d == nil || err != nil {
		return
	}
	read, write := of(d)
	switch fields[1] {
	case "Read":
		*read = n
	case "Write":
		*write = n
	}
}

// v2 reads a line such as "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0".
func (all devices) v2(line string) {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return
	}
	d := all.of(fields[0])
	if d == nil {
		return
	}
	for _, field := range fields[1:] {
		name, value, _ := strings.Cut(field, "=")
		into := map[string]*uint64{
			"rbytes": &d.ReadBytes,
			"wbytes": &d.WriteBytes,
			"rios":   &d.Reads,
			"wios":   &d.Writes,
		}[name]
		if n, err := strconv.ParseUint(value, 10, 64); into != nil && err == nil {
			*into = n
		}
	}
}

func (all devices) sorted() []DeviceIO {
	var out []DeviceIO
	for _, d := range all {
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b DeviceIO) int {
		if a.Major != b.Major {
			return int(a.Major) - int(b.Major)
		}
		return int(a.Minor) - int(b.Minor)
	})
	return out
}
