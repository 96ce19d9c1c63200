package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// topologyMetrics are about what pods have on the same NUMA nodes.
type topologyMetrics struct {
	requests, errors prometheus.Counter
	took             prometheus.Histogram
	aligned, apart   *prometheus.CounterVec
	// pinned and unpinned are about memory.
	pinned, unpinned prometheus.Counter
}

func (s *Set) newTopology() topologyMetrics {
	m := topologyMetrics{
		requests: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_topology_manager_admission_requests_total",
			Help: "Pods that were admitted or refused.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_topology_manager_admission_errors_total",
			Help: "Pods that did not get their devices, CPUs or memory on the same NUMA nodes.",
		}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubelet_topology_manager_admission_duration_ms",
			Help:    "Milliseconds in which a pod got its devices, CPUs and memory; 0 if it wants none.",
			Buckets: prometheus.ExponentialBuckets(0.05, 2, 15),
		}),
		aligned: s.counters("kubelet_container_aligned_compute_resources_count",
			"Containers or pods whose resources are within a boundary, by scope and boundary.", "boundary",
			"scope"),
		apart: s.counters("kubelet_container_aligned_compute_resources_failure_count",
			"Containers or pods whose resources could not be within a boundary, by scope and boundary.",
			"boundary", "scope"),
		pinned: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_memory_manager_pinning_requests_total",
			Help: "Containers that asked for memory of certain NUMA nodes.",
		}),
		unpinned: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_memory_manager_pinning_errors_total",
			Help: "Containers that did not get memory of certain NUMA nodes.",
		}),
	}
	s.Registry.MustRegister(m.requests, m.errors, m.took, m.pinned, m.unpinned)
	return m
}

// Aligned counts a pod that was admitted or refused, and how long it took to give it its devices,
// CPUs and memory. It failed if it did not get them under a policy that aligns.
func (s *Set) Aligned(failed bool, took time.Duration) {
	s.devices.topology.requests.Inc()
	if failed {
		s.devices.topology.errors.Inc()
	}
	s.devices.topology.took.Observe(float64(took) / float64(time.Millisecond))
}

// The words of the kubelet's metrics for what is within which boundary.
const (
	scopeContainer, scopePod = "container", "pod"
	numaNode                 = "numa_node"
	physicalCPU, uncoreCache = "physical_cpu", "uncore_cache"
)

// Alignable makes the counters of [Set.Guaranteed] exist, which are 0 until something is counted.
func (s *Set) Alignable() {
	for _, scope := range []string{scopeContainer, scopePod} {
		s.devices.topology.aligned.WithLabelValues(numaNode, scope)
		s.devices.topology.apart.WithLabelValues(numaNode, scope)
	}
}

// CPUsAlignable makes the counters of [Set.CPUsAligned] exist, which are 0 until something is
// counted. That CPUs are not of one last-level cache is no failure.
func (s *Set) CPUsAlignable() {
	s.devices.topology.aligned.WithLabelValues(physicalCPU, scopeContainer)
	s.devices.topology.apart.WithLabelValues(physicalCPU, scopeContainer)
	s.devices.topology.aligned.WithLabelValues(uncoreCache, scopeContainer)
}

// Guaranteed counts what was put on one NUMA node, or could not be: a container or a pod.
func (s *Set) Guaranteed(scope string, failed bool) { s.within(numaNode, scope, failed) }

// CPUsAligned counts a container that got, or could not get, CPUs within a boundary.
func (s *Set) CPUsAligned(boundary string, failed bool) { s.within(boundary, scopeContainer, failed) }

func (s *Set) within(boundary, scope string, failed bool) {
	counter := s.devices.topology.aligned
	if failed {
		counter = s.devices.topology.apart
	}
	counter.WithLabelValues(boundary, scope).Inc()
}

// MemoryPinned counts a container that asked for memory of certain NUMA nodes.
func (s *Set) MemoryPinned(failed bool) {
	s.devices.topology.pinned.Inc()
	if failed {
		s.devices.topology.unpinned.Inc()
	}
}
