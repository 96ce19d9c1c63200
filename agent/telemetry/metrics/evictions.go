package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// evictionMetrics are about pods that have to leave. Names, labels and buckets are the kubelet's.
type evictionMetrics struct {
	evicted, preempted *prometheus.CounterVec

	age *prometheus.HistogramVec
}

func (s *Set) evictionMetrics() evictionMetrics {
	return evictionMetrics{
		evicted: s.counters("kubelet_evictions", "Pods that were evicted, by the signal.", "eviction_signal"),
		preempted: s.counters("kubelet_preemptions", "Pods that had to leave for a critical pod, by the resource that it "+
			"lacked.", "preemption_signal"),
		age: s.histogramsOf("kubelet_eviction_stats_age_seconds",
			"Seconds from the reading of the usage to the eviction, by the signal.", prometheus.DefBuckets,
			"eviction_signal"),
	}
}

// Evicted counts a pod that was asked to leave for a signal.
func (s *Set) Evicted(signal string) { s.evictions.evicted.WithLabelValues(signal).Inc() }

// Preempted counts a pod that had to leave for a critical pod. resource is the first one that the
// critical pod lacked.
func (s *Set) Preempted(resource string) { s.evictions.preempted.WithLabelValues(resource).Inc() }

// EvictionStatsAge records how old the usage was by which a pod was chosen.
func (s *Set) EvictionStatsAge(signal string, age time.Duration) {
	s.evictions.age.WithLabelValues(signal).Observe(max(age, 0).Seconds())
}
