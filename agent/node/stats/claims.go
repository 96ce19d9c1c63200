package stats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// claimMetrics reads the metrics of claims when it is scraped.
type claimMetrics struct {
	collector *Collector
	metrics   []claimMetric
}

type claimMetric struct {
	desc *prometheus.Desc
	of   func(*statsapi.FsStats) *uint64
}

// Claims returns the collector of the metrics of claims' volumes.
func (c *Collector) Claims() prometheus.Collector {
	out := &claimMetrics{collector: c}
	add := func(name, help string, of func(*statsapi.FsStats) *uint64) {
		out.metrics = append(out.metrics,
			claimMetric{prometheus.NewDesc(name, help, []string{"namespace", "persistentvolumeclaim"}, nil), of})
	}
	add("kubelet_volume_stats_capacity_bytes", "Capacity of a claim's volume, in bytes.",
		func(s *statsapi.FsStats) *uint64 { return s.CapacityBytes })
	add("kubelet_volume_stats_available_bytes", "Bytes that are free in a claim's volume.",
		func(s *statsapi.FsStats) *uint64 { return s.AvailableBytes })
	add("kubelet_volume_stats_used_bytes", "Bytes that are used in a claim's volume.",
		func(s *statsapi.FsStats) *uint64 { return s.UsedBytes })
	add("kubelet_volume_stats_inodes", "Inodes of a claim's volume.", func(s *statsapi.FsStats) *uint64 {
		return s.Inodes
	})
	add("kubelet_volume_stats_inodes_free", "Inodes that are free in a claim's volume.",
		func(s *statsapi.FsStats) *uint64 { return s.InodesFree })
	add("kubelet_volume_stats_inodes_used", "Inodes that are used in a claim's volume.",
		func(s *statsapi.FsStats) *uint64 { return s.InodesUsed })
	return out
}

// Describe implements prometheus.Collector.
func (m *claimMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, metric := range m.metrics {
		ch <- metric.desc
	}
}

// Collect implements prometheus.Collector. If pods share a claim, the stats of the first pod count.
func (m *claimMetrics) Collect(ch chan<- prometheus.Metric) {
	seen := map[statsapi.PVCReference]bool{}
	for _, v := range m.collector.claimStats() {
		if seen[*v.PVCRef] {
			continue
		}
		seen[*v.PVCRef] = true
		for _, metric := range m.metrics {
			if value := metric.of(&v.FsStats); value != nil {
				ch <- prometheus.MustNewConstMetric(metric.desc, prometheus.GaugeValue, float64(*value),
					v.PVCRef.Namespace, v.PVCRef.Name)
			}
		}
	}
}

// claimStats returns the stats of the claims of all pods.
func (c *Collector) claimStats() []statsapi.VolumeStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin(time.Now())
	pods := map[types.UID]bool{}
	var out []statsapi.VolumeStats
	for _, pod := range c.deps.Pods() {
		pods[pod.UID] = true
		volumes, _ := c.volumes(pod, time.Now(), true)
		out = append(out, volumes...)
	}
	c.keep(pods)
	return out
}
