package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// deviceMetrics are about device plugins.
type deviceMetrics struct {
	registrations *prometheus.CounterVec
	allocations   *prometheus.HistogramVec
	// asked counts the requests to the pod resources API: all, and by method those and the failed
	// ones.
	asked            *prometheus.CounterVec
	askedBy, refused map[string]*prometheus.CounterVec
}

func (s *Set) newDevices() deviceMetrics {
	m := deviceMetrics{
		registrations: s.counters("kubelet_device_plugin_registration_total",
			"Registrations of device plugins, by resource.", "resource_name"),
		allocations: s.histograms("kubelet_device_plugin_alloc_duration_seconds",
			"Duration in seconds of an allocation by a device plugin, by resource.", "resource_name"),
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
func (s *Set) PodResourcesAsked(method string, failed bool) {
	const version = "v1"
	s.devices.asked.WithLabelValues(version).Inc()
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
