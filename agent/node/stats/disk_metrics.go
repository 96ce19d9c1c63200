package stats

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/internal/pods"
)

// diskMetrics reads the metrics of claims' volumes and of containers' logs when it is scraped.
type diskMetrics struct {
	collector *Collector
	metrics   []claimMetric
	logs      *prometheus.Desc
}

type claimMetric struct {
	desc *prometheus.Desc
	of   func(*statsapi.FsStats) *uint64
}

// DiskMetrics returns the collector of the metrics of claims' volumes and of containers' logs.
func (c *Collector) DiskMetrics() prometheus.Collector {
	out := &diskMetrics{collector: c, logs: prometheus.NewDesc("kubelet_container_log_filesystem_used_bytes",
		"Bytes that a container's logs take.", []string{"uid", "namespace", "pod", "container"}, nil)}
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
func (m *diskMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.logs
	for _, metric := range m.metrics {
		ch <- metric.desc
	}
}

// Collect implements prometheus.Collector. If pods share a claim, the stats of the first pod count.
func (m *diskMetrics) Collect(ch chan<- prometheus.Metric) {
	claims, logs := m.collector.diskStats()
	for _, l := range logs {
		ch <- prometheus.MustNewConstMetric(m.logs, prometheus.GaugeValue, float64(l.bytes), string(l.pod.UID),
			l.pod.Namespace, l.pod.Name, l.container)
	}
	seen := map[statsapi.PVCReference]bool{}
	for _, v := range claims {
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

// logStats is what the logs of a container take.
type logStats struct {
	pod       *v1.Pod
	container string
	bytes     uint64
}

// diskStats returns the stats of the claims and of the logs of all pods. A container that never ran
// has no logs.
func (c *Collector) diskStats() (claims []statsapi.VolumeStats, logs []logStats) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	all := c.deps.Pods()
	for _, pod := range all {
		volumes, _ := c.volumes(ctx, pod, true)
		claims = append(claims, volumes...)
		for container := range pods.Containers(&pod.Spec) {
			if size, _ := c.logs(ctx, pod, container.Name); size.inodes > 0 {
				logs = append(logs, logStats{pod, container.Name, size.bytes})
			}
		}
	}
	c.keep(all)
	return claims, logs
}
