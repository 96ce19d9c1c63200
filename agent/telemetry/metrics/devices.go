package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// deviceMetrics are about device plugins.
type deviceMetrics struct {
	registrations *prometheus.CounterVec
	allocations   *prometheus.HistogramVec
	// asked counts the requests to the pod resources API: all, and by method those and the failed
	// ones.
	asked            *prometheus.CounterVec
	askedBy, refused map[string]*prometheus.CounterVec
	cpus             cpuMetrics
	topology         topologyMetrics
	dra              draMetrics
}

// cpuMetrics are about CPUs that containers have for themselves.
type cpuMetrics struct {
	pinned, failed    prometheus.Counter
	exclusive, shared prometheus.Gauge
	onNode            *prometheus.GaugeVec
	// allocated, unallocated and assigned are about memory, too.
	allocated, unallocated, assigned *prometheus.CounterVec
}

func (s *Set) newCPUs() cpuMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := cpuMetrics{
		pinned: counter("kubelet_cpu_manager_pinning_requests_total", "Containers that asked for CPUs of their own."),
		failed: counter("kubelet_cpu_manager_pinning_errors_total", "Containers that did not get CPUs of their own."),
		exclusive: gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count",
			"CPUs that containers have for themselves."),
		shared: gauge("kubelet_cpu_manager_shared_pool_size_millicores",
			"Thousandths of the CPUs that no container has for itself, without the reserved ones."),
		onNode: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_cpu_manager_allocation_per_numa",
			Help: "CPUs that containers have for themselves, by NUMA node.",
		}, []string{"numa_node"}),
	}
	m.allocated = s.counters("resource_manager_allocations_total",
		"Containers that got CPUs or memory, by the source: node or pod. Only with the feature gate "+
			"PodLevelResourceManagers.", "resource_name", "source")
	m.unallocated = s.counters("resource_manager_allocation_errors_total",
		"Containers or pods that did not get CPUs or memory, by the source: node or pod. Only with the feature gate "+
			"PodLevelResourceManagers.", "resource_name", "source")
	m.assigned = s.counters("resource_manager_container_assignments",
		"Containers by the kind of their CPUs or memory: node_exclusive, pod_exclusive or pod_shared. Only with the "+
			"feature gate PodLevelResourceManagers.",
		"resource_name", "assignment_type")
	s.Registry.MustRegister(m.pinned, m.failed, m.exclusive, m.shared, m.onNode)
	return m
}

// Allocated counts a container that got CPUs or memory, from the node or from its pod, or who did
// not get them.
func (s *Set) Allocated(resource v1.ResourceName, source string, failed bool) {
	counter := s.devices.cpus.allocated
	if failed {
		counter = s.devices.cpus.unallocated
	}
	counter.WithLabelValues(string(resource), source).Inc()
}

// Assigned counts a container by the kind of its CPUs or its memory.
func (s *Set) Assigned(resource v1.ResourceName, kind string) {
	s.devices.cpus.assigned.WithLabelValues(string(resource), kind).Inc()
}

// CPUsPinned counts a container that asked for CPUs of its own.
func (s *Set) CPUsPinned(failed bool) {
	s.devices.cpus.pinned.Inc()
	if failed {
		s.devices.cpus.failed.Inc()
	}
}

// CPUsShared sets how many CPUs containers have for themselves, and how many of the others are not
// reserved.
func (s *Set) CPUsShared(exclusive, shared int) {
	s.devices.cpus.exclusive.Set(float64(exclusive))
	s.devices.cpus.shared.Set(1000 * float64(shared))
}

// CPUsOnNode sets how many CPUs of a NUMA node containers have for themselves.
func (s *Set) CPUsOnNode(node, exclusive int) {
	s.devices.cpus.onNode.WithLabelValues(strconv.Itoa(node)).Set(float64(exclusive))
}

func (s *Set) newDevices() deviceMetrics {
	m := deviceMetrics{
		registrations: s.counters("kubelet_device_plugin_registration_total",
			"Registrations of device plugins, by resource.", "resource_name"),
		allocations: s.histograms("kubelet_device_plugin_alloc_duration_seconds",
			"Duration in seconds of an allocation by a device plugin, by resource.", "resource_name"),
		cpus: s.newCPUs(), topology: s.newTopology(), dra: s.newDRA(),
		asked: s.counters("kubelet_pod_resources_endpoint_requests_total",
			"Requests to the pod resources API, by its version.", "server_api_version"),
		askedBy: map[string]*prometheus.CounterVec{}, refused: map[string]*prometheus.CounterVec{},
	}
	for _, method := range []string{"list", "get", "get_allocatable"} {
		m.askedBy[method] = s.counters("kubelet_pod_resources_endpoint_requests_"+method,
			"Requests to the method "+method+" of the pod resources API, by its version.", "server_api_version")
		m.refused[method] = s.counters("kubelet_pod_resources_endpoint_errors_"+method,
			"Requests to the method "+method+" of the pod resources API that failed, by its version.",
			"server_api_version")
	}
	return m
}

// PodResourcesAsked counts a request to the pod resources API: of the method list, get or
// get_allocatable.
func (s *Set) PodResourcesAsked(version, method string, failed bool) {
	s.devices.asked.WithLabelValues(version).Inc()
	if method == "" {
		return
	}
	s.devices.askedBy[method].WithLabelValues(version).Inc()
	if failed {
		s.devices.refused[method].WithLabelValues(version).Inc()
	}
}

// DevicePluginRegistered counts a registration of a device plugin.
func (s *Set) DevicePluginRegistered(resource string) {
	s.devices.registrations.WithLabelValues(resource).Inc()
}

// DevicesAllocated measures an allocation by a device plugin.
func (s *Set) DevicesAllocated(resource string, took time.Duration) {
	s.devices.allocations.WithLabelValues(resource).Observe(took.Seconds())
}
