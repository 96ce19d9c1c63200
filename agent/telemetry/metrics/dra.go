package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// draMetrics are about dynamic resource allocation.
type draMetrics struct {
	operations *prometheus.HistogramVec
	calls      *prometheus.HistogramVec
}

func (s *Set) newDRA() draMetrics {
	// the buckets are the kubelet's: a driver has 45 seconds to answer
	buckets := prometheus.ExponentialBucketsRange(0.1, 40, 15)
	return draMetrics{
		operations: s.histogramsOf("dra_operations_duration_seconds",
			"Duration in seconds of the work on all resource claims of a pod (PrepareResources, UnprepareResources), by "+
				"whether it failed.", buckets, "operation_name", "is_error"),
		calls: s.histogramsOf("dra_grpc_operations_duration_seconds",
			"Duration in seconds of requests to DRA drivers, by driver, method and gRPC status code.", buckets,
			"driver_name", "method_name", "grpc_status_code"),
	}
}

// ClaimsWorkedOn measures the work on a pod's resource claims: PrepareResources or
// UnprepareResources.
func (s *Set) ClaimsWorkedOn(operation string, failed bool, took time.Duration) {
	s.devices.dra.operations.WithLabelValues(operation, strconv.FormatBool(failed)).Observe(took.Seconds())
}

// DRADriverAsked measures a request to a DRA driver.
func (s *Set) DRADriverAsked(driver, method, code string, took time.Duration) {
	s.devices.dra.calls.WithLabelValues(driver, method, code).Observe(took.Seconds())
}

// ResourceClaims adds the number of resource claims in use: all, and by driver. count calls add
// once for each driver; the driver "<any>" stands for all. It is called when metrics are gathered,
// and must be quick and safe for concurrent use. Call ResourceClaims once.
func (s *Set) ResourceClaims(count func(add func(driver string, n int))) {
	s.Registry.MustRegister(resourceClaims{count, prometheus.NewDesc("dra_resource_claims_in_use",
		"Resource claims that are prepared for pods of the node, by driver, and all of them as the driver <any>.",
		[]string{"driver_name"}, nil)})
}

// resourceClaims is the collector behind [Set.ResourceClaims].
type resourceClaims struct {
	count func(add func(driver string, n int))
	desc  *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c resourceClaims) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c resourceClaims) Collect(ch chan<- prometheus.Metric) {
	c.count(func(driver string, n int) {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), driver)
	})
}
