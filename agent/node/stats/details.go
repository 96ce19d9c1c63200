package stats

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/cgroups"
)

// detail is a metric of a cgroup beyond its usage.
type detail struct {
	family
	value func(d *cgroups.Details) float64
}

// ofDetails are the metrics of the cgroup of each pod and container. ofSpec are the metrics of its
// limits.
var (
	ofDetails = []detail{
		{
			counter("container_cpu_cfs_periods_total", "Number of elapsed enforcement period intervals."),
			func(d *cgroups.Details) float64 { return float64(d.Periods) },
		},
		{
			counter("container_cpu_cfs_throttled_periods_total", "Number of throttled period intervals."),
			func(d *cgroups.Details) float64 { return float64(d.ThrottledPeriods) },
		},
		{
			counter("container_cpu_cfs_throttled_seconds_total", "Total time duration the container has been throttled."),
			func(d *cgroups.Details) float64 { return d.Throttled.Seconds() },
		},
		{
			counter("container_oom_events_total", "Count of out of memory events observed for the container"),
			func(d *cgroups.Details) float64 { return float64(d.OOMKills) },
		},
		{
			counter("container_cpu_user_seconds_total", "Cpu time spent in programs, in seconds."),
			func(d *cgroups.Details) float64 { return d.UserCPU.Seconds() },
		},
		{
			counter("container_cpu_system_seconds_total", "Cpu time spent in the kernel, in seconds."),
			func(d *cgroups.Details) float64 { return d.SystemCPU.Seconds() },
		},
		{
			gauge("container_memory_max_usage_bytes", "The most memory that was ever in use, in bytes."),
			func(d *cgroups.Details) float64 { return float64(d.PeakMemory) },
		},
		{
			counter("container_memory_failcnt", "How often memory ran into its limit."),
			func(d *cgroups.Details) float64 { return float64(d.MemoryFailures) },
		},
		{
			gauge("container_memory_mapped_file", "Mapped file pages, in bytes."),
			func(d *cgroups.Details) float64 { return float64(d.MappedFile) },
		},
		{
			gauge("container_threads", "Number of threads."),
			func(d *cgroups.Details) float64 { return float64(d.Threads) },
		},
		{
			gauge("container_threads_max", "Number of threads that there may be; 0 is any number."),
			func(d *cgroups.Details) float64 { return float64(d.MaxThreads) },
		},
	}
	ofSpec = []detail{
		{
			gauge("container_spec_cpu_period", "CFS period, in microseconds."),
			func(d *cgroups.Details) float64 { return float64(d.CPUPeriod.Microseconds()) },
		},
		{
			gauge("container_spec_cpu_shares", "Share of cpu under contention."),
			func(d *cgroups.Details) float64 { return float64(d.CPUShares) },
		},
		{
			gauge("container_spec_memory_limit_bytes", "Memory limit, in bytes; 0 is none."),
			func(d *cgroups.Details) float64 { return float64(d.MemoryLimit) },
		},
		{
			gauge("container_spec_memory_reservation_limit_bytes", "Memory that is kept for it, in bytes."),
			func(d *cgroups.Details) float64 { return float64(d.MemoryReservation) },
		},
		{
			gauge("container_spec_memory_swap_limit_bytes", "Swap limit, in bytes; 0 is none."),
			func(d *cgroups.Details) float64 { return float64(d.SwapLimit) },
		},
	}
	specQuota = gauge("container_spec_cpu_quota", "CFS quota, in microseconds.")
)

// labeled returns a metric with labels in addition to those of a cgroup.
func labeled(name, help string, kind prometheus.ValueType, more ...string) family {
	return family{name, help, kind, append(more, cgroupLabels...)}
}

// ofDevice are the metrics of each block device that a cgroup has used.
var ofDevice = []struct {
	family
	value func(d *cgroups.DeviceIO) uint64
}{
	{
		labeled("container_fs_reads_bytes_total", "Bytes read.", prometheus.CounterValue, "device"),
		func(d *cgroups.DeviceIO) uint64 { return d.ReadBytes },
	},
	{
		labeled("container_fs_reads_total", "Reads completed.", prometheus.CounterValue, "device"),
		func(d *cgroups.DeviceIO) uint64 { return d.Reads },
	},
	{
		labeled("container_fs_writes_bytes_total", "Bytes written.", prometheus.CounterValue, "device"),
		func(d *cgroups.DeviceIO) uint64 { return d.WriteBytes },
	},
	{
		labeled("container_fs_writes_total", "Writes completed.", prometheus.CounterValue, "device"),
		func(d *cgroups.DeviceIO) uint64 { return d.Writes },
	},
}

var (
	deviceUsage = labeled("container_blkio_device_usage_total", "Bytes moved by a device.", prometheus.CounterValue,
		"device", "major", "minor", "operation")
	memoryFailures = labeled("container_memory_failures_total", "Page faults.", prometheus.CounterValue, "failure_type",
		"scope")
	layerUsage = labeled("container_fs_usage_bytes", "Bytes that the container's own layer takes.",
		prometheus.GaugeValue, "device")
	fileLimit = labeled("container_ulimits_soft", "Soft limits of the first process; -1 is none.",
		prometheus.GaugeValue, "ulimit")
	fileCount   = gauge("container_file_descriptors", "Number of open file descriptors.")
	socketCount = gauge("container_sockets", "Number of open sockets.")
)

// details adds the metrics of a cgroup beyond its usage. It adds nothing if the cgroup is gone.
func (c *Collector) details(e *emitter, u *cgroups.Usage, path string, at time.Time, labels ...string) {
	d, err := c.cgroups().Details(path)
	if err != nil {
		return
	}
	for _, m := range ofDetails {
		e.add(m.family, at, m.value(&d), labels...)
	}
	for _, m := range ofSpec {
		e.add(m.family, time.Time{}, m.value(&d), labels...)
	}
	if d.CPUQuota > 0 {
		e.add(specQuota, time.Time{}, float64(d.CPUQuota.Microseconds()), labels...)
	}
	for kind, n := range map[string]uint64{"pgfault": u.PageFaults, "pgmajfault": u.MajorPageFaults} {
		e.add(memoryFailures, at, float64(n), append([]string{kind, "hierarchy"}, labels...)...)
	}
	names := c.devices()
	for i := range d.Devices {
		io := &d.Devices[i]
		major, minor := strconv.FormatUint(io.Major, 10), strconv.FormatUint(io.Minor, 10)
		device := names[major+":"+minor]
		for _, m := range ofDevice {
			e.add(m.family, at, float64(m.value(io)), append([]string{device}, labels...)...)
		}
		for operation, n := range map[string]uint64{"Read": io.ReadBytes, "Write": io.WriteBytes} {
			e.add(deviceUsage, at, float64(n), append([]string{device, major, minor, operation}, labels...)...)
		}
	}
}

// devices returns the paths of block devices by their numbers, "MAJOR:MINOR".
func (c *Collector) devices() map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(c.proc("partitions")) {
		if fields := strings.Fields(line); len(fields) == 4 {
			out[fields[0]+":"+fields[1]] = filepath.Join("/dev", fields[3])
		}
	}
	return out
}

// layersPeriod is the least time between two requests to the runtime about all layers. Each costs
// every shim some milliseconds, and containerd itself measures layers only this often
// (stats_collect_period of its images).
const layersPeriod = 10 * time.Second

// scrapeLayers returns the layers of a reading's containers, by their ids. It asks the runtime as
// rarely as possible.
func (c *Collector) scrapeLayers(ctx context.Context, r *reading) map[string]layer {
	layers, _ := c.layersOf("", sizePeriod).value(ctx)
	for i := range r.pods {
		for j := range r.pods[i].containers {
			if _, known := layers[r.pods[i].containers[j].id]; !known {
				layers, _ = c.layersOf("", layersPeriod).value(ctx)
				return layers
			}
		}
	}
	return layers
}
