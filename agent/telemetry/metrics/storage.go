package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// csiHistogram makes the histogram of calls to CSI drivers, with the kubelet's buckets.
func (s *Set) csiHistogram() *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "csi_operations_seconds",
		Help:    "Duration in seconds of calls to CSI drivers, by driver, method and status code.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"})
	s.Registry.MustRegister(h)
	return h
}

// newStorage makes the histogram of operations on volumes, with the kubelet's buckets.
func (s *Set) newStorage() *prometheus.HistogramVec {
	return s.histogramsOf("storage_operation_duration_seconds",
		"Duration in seconds of operations on volumes, by plugin, operation and outcome. A pod's volumes are taken "+
			"down together.", []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		"volume_plugin", "operation_name", "status", "migrated")
}

// Storage records an operation on a volume; it fits volumes.Deps.Operation.
func (s *Set) Storage(plugin, operation string, took time.Duration, err error) {
	outcome := "success"
	if err != nil {
		outcome = "fail-unknown" // a kubelet knows no other failure
	}
	s.storage.WithLabelValues(plugin, operation, outcome, "false").Observe(took.Seconds())
}

// CSI records a call to a CSI driver; it fits csi.Observer.
func (s *Set) CSI(driver, method, code string, took time.Duration) {
	s.csi.WithLabelValues(driver, method, code, "false").Observe(took.Seconds())
}
