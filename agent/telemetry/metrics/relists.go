package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// relistMetrics are about listings of what the runtime has. Names and buckets are the kubelet's.
type relistMetrics struct {
	all, pod  prometheus.Histogram
	intervals prometheus.Histogram
	seen      prometheus.Gauge
	// last is when the last listing of everything ended, in nanoseconds since 1970; 0 before the
	// first one.
	last atomic.Int64
}

func (s *Set) newRelists() *relistMetrics {
	m := &relistMetrics{
		all: s.histogramOf("kubelet_pleg_relist_duration_seconds",
			"Duration in seconds of listing all pods of the runtime.", prometheus.DefBuckets),
		pod: s.histogramOf("kubelet_pleg_pod_relist_duration_seconds",
			"Duration in seconds of listing what the runtime has of one pod.", prometheus.DefBuckets),
		intervals: s.histogramOf("kubelet_pleg_relist_interval_seconds",
			"Seconds between two listings of all pods of the runtime. Events of the runtime come between them.",
			prometheus.DefBuckets),
		seen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_pleg_last_seen_seconds",
			Help: "Time of the last listing of all pods of the runtime, in seconds since 1970.",
		}),
	}
	discarded := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_pleg_discard_events",
		Help: "Events of the runtime that were discarded: always 0, because an event only wakes its pod's worker.",
	})
	s.Registry.MustRegister(m.seen, discarded)
	return m
}

// Relisted records that all pods of the runtime were listed, and how long that took.
func (s *Set) Relisted(d time.Duration) {
	now := time.Now()
	s.relists.all.Observe(d.Seconds())
	s.relists.seen.Set(float64(now.UnixNano()) / 1e9)
	if before := s.relists.last.Swap(now.UnixNano()); before != 0 {
		s.relists.intervals.Observe(now.Sub(time.Unix(0, before)).Seconds())
	}
}

// PodListed records how long it took to list what the runtime has of one pod.
func (s *Set) PodListed(d time.Duration) { s.relists.pod.Observe(d.Seconds()) }
