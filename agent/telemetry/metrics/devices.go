package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// deviceMetrics are about device plugins.
type deviceMetrics struct {
	registrations *prometheus.CounterVec
	allocations   *prometheus.HistogramVec
}

func (s *Set) newDevices() deviceMetrics {
	return deviceMetrics{
		registrations: s.counters("kubelet_device_plugin_registration_total",
			"Registrations of device plugins, by resource.", "resource_name"),
		allocations: s.histograms("kubelet_device_plugin_alloc_duration_seconds",
			"Duration in seconds of an allocation by a device plugin, by resource.", "resource_name"),
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
