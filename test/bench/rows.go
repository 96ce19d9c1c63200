package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// The keys of a column's values.
const (
	oneP50         = "one_p50_ms"
	oneP99         = "one_p99_ms"
	burstRate      = "burst_pods_per_s"
	burstLast      = "burst_last_ms"
	removeRate     = "remove_pods_per_s"
	costAgent      = "burst_cpu_agent_ms_per_pod"
	costContainerd = "burst_cpu_containerd_ms_per_pod"
	costRest       = "burst_cpu_rest_ms_per_pod"
	seenP50        = "death_seen_p50_ms"
	seenP99        = "death_seen_p99_ms"
	restartP50     = "death_restarted_p50_ms"
	stopP50        = "delete_stopped_p50_ms"
	goneP50        = "delete_gone_p50_ms"
	goneP99        = "delete_gone_p99_ms"
	cpuAgent       = "idle_cpu_agent_percent"
	cpuContainerd  = "idle_cpu_containerd_percent"
	cpuShims       = "idle_cpu_shims_percent"
	rssEmpty       = "rss_empty_mb"
	anonEmpty      = "anon_empty_mb"
	rssFull        = "rss_full_mb"
	anonFull       = "anon_full_mb"
	adoption       = "adoption_ms"
)

// The names of the columns.
const (
	bareColumn    = "bare"
	berthColumn   = "berth"
	nativeColumn  = "native"
	pausedColumn  = "paused"
	kubeletColumn = "kubelet"
)

// column has what was measured for one subject.
type column struct {
	Name   string
	Values map[string]float64
	// Parallel is with how many pods at a time bare calls were fastest.
	Parallel int      `json:",omitempty"`
	Notes    []string `json:",omitempty"`

	make maker
	// fake says that the column's runtime is the one in memory.
	fake bool
}

func newColumn(name string, mk maker) *column {
	return &column{Name: name, Values: map[string]float64{}, make: mk}
}

// native reports whether the column's containerd has no CRI plugin.
func (c *column) native() bool { return c.Name == nativeColumn || c.Name == pausedColumn }

func (c *column) times(key string, d time.Duration) {
	c.Values[key] = float64(d.Microseconds()) / 1000
}

// aim is what the value of a column in a row should be. base is the value of the column beside, in
// the same row; an aim that needs none names no such column. The project chose the aims itself.
type aim struct {
	column, beside, text string
	met                  func(v, base float64) bool
}

// below is an aim for a value itself.
func below(column string, limit float64, text string) aim {
	return aim{column, "", text, func(v, _ float64) bool { return v < limit }}
}

// row is a line of the table.
type row struct {
	title, key, format string
	aims               []aim
}

// rows returns the table. Its "many" is the number of pods of a burst.
func rows(s sizes) []row {
	both := func(limit float64, text string) []aim {
		return []aim{below(berthColumn, limit, text), below(nativeColumn, limit, text)}
	}
	atMost := func(column string, part float64) aim {
		text := fmt.Sprintf("≤ %.2f × bare", part)
		return aim{column, bareColumn, text, func(v, bare float64) bool { return v <= part*bare }}
	}
	atLeast := func(column string, part float64) aim {
		text := fmt.Sprintf("≥ %.1f × bare", part)
		return aim{column, bareColumn, text, func(v, bare float64) bool { return v >= part*bare }}
	}
	many := fmt.Sprintf("%d pods", s.burst)
	return []row{
		{
			"manifest → running, one pod, p50", oneP50, "%.0f ms",
			[]aim{atMost(berthColumn, 1.10), atMost(nativeColumn, 0.55), atMost(pausedColumn, 0.90)},
		},
		{"manifest → running, one pod, p99", oneP99, "%.0f ms", nil},
		{
			many + " at once, rate", burstRate, "%.1f pods/s",
			[]aim{atLeast(berthColumn, 0.9), atLeast(nativeColumn, 1.5)},
		},
		{many + " at once, the last runs", burstLast, "%.0f ms", nil},
		{"CPU for each of them: the agent", costAgent, "%.1f ms", []aim{
			{berthColumn, "", "≤ 8 ms", func(v, _ float64) bool { return v <= 8 }},
		}},
		{"CPU for each of them: containerd", costContainerd, "%.1f ms", nil},
		{"CPU for each of them: everything else", costRest, "%.1f ms", nil},
		{many + " stopped and removed, rate", removeRate, "%.1f pods/s", []aim{atLeast(nativeColumn, 1.5)}},
		{"container death → seen, p50", seenP50, "%.0f ms", both(50, "< 50 ms")},
		{"container death → seen, p99", seenP99, "%.0f ms", nil},
		{"container death → restarted, p50", restartP50, "%.0f ms", nil},
		{"delete → sandbox stopped, p50", stopP50, "%.0f ms", nil},
		{"delete → gone, p50", goneP50, "%.0f ms", nil},
		{"delete → gone, p99", goneP99, "%.0f ms", nil},
		{"idle, " + many + ": CPU of the agent", cpuAgent, "%.2f %%", both(0.2, "< 0.2 %")},
		{"idle, " + many + ": CPU of containerd", cpuContainerd, "%.2f %%", both(0.2, "< 0.2 %")},
		{"idle, " + many + ": CPU of all shims", cpuShims, "%.2f %%", both(0.2, "< 0.2 %")},
		{"memory (RSS), 0 pods", rssEmpty, "%.1f MB", nil},
		{"of it anonymous", anonEmpty, "%.1f MB", nil},
		{"memory (RSS), " + many, rssFull, "%.1f MB", []aim{
			{berthColumn, "", "≤ 35 MB", func(v, _ float64) bool { return v <= 35 }},
		}},
		{"of it anonymous", anonFull, "%.1f MB", nil},
		{"adoption of " + many + " after kill -9", adoption, "%.0f ms", nil},
	}
}

// percentile returns the p-th percentile by nearest rank.
func percentile(values []time.Duration, p float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(p/100*float64(len(sorted))))-1)]
}

func rate(n int, d time.Duration) string { return fmt.Sprintf("%.1f pods/s", float64(n)/d.Seconds()) }
