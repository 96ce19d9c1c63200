package queues

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
)

// subsystem begins the names of all metrics of work queues.
const subsystem = "workqueue"

func init() {
	p := newProvider()
	workqueue.SetProvider(p)
	legacyregistry.Registerer().MustRegister(p)
}

// provider makes the metrics of queues, and collects them. It is a workqueue.MetricsProvider.
type provider struct {
	depth                      *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	waitDuration, workDuration *prometheus.HistogramVec
}

// newProvider returns a provider without queues.
func newProvider() *provider {
	labels := []string{"name"}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}, labels)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(10e-9, 10, 10),
		}, labels)
	}
	return &provider{
		depth: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "depth", Help: "How many items wait in a work queue.",
		}, labels),
		adds:         counter("adds_total", "How many items came to a work queue."),
		retries:      counter("retries_total", "How many items came to a work queue again after a failure."),
		waitDuration: histogram("queue_duration_seconds", "How long items waited in a work queue."),
		workDuration: histogram("work_duration_seconds", "How long the work on an item took."),
	}
}

// Describe says nothing, which prometheus.Collector allows: Kubernetes registers metrics of the same
// names, which stay empty.
func (*provider) Describe(chan<- *prometheus.Desc) {}

// Collect hands the metrics over.
func (p *provider) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{p.depth, p.adds, p.retries, p.waitDuration, p.workDuration} {
		c.Collect(metrics)
	}
}

// NewDepthMetric returns how many items wait in that queue.
func (p *provider) NewDepthMetric(name string) workqueue.GaugeMetric {
	return p.depth.WithLabelValues(name)
}

// NewAddsMetric returns how many items came to that queue.
func (p *provider) NewAddsMetric(name string) workqueue.CounterMetric {
	return p.adds.WithLabelValues(name)
}

// NewRetriesMetric returns how many of them came again.
func (p *provider) NewRetriesMetric(name string) workqueue.CounterMetric {
	return p.retries.WithLabelValues(name)
}

// NewLatencyMetric returns how long items waited in that queue.
func (p *provider) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return p.waitDuration.WithLabelValues(name)
}

// NewWorkDurationMetric returns how long the work on an item took.
func (p *provider) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return p.workDuration.WithLabelValues(name)
}

// NewUnfinishedWorkSecondsMetric returns what ends the timer of a queue.
func (*provider) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric { return ends{} }

// NewLongestRunningProcessorSecondsMetric returns what ends the timer of a queue.
func (*provider) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return ends{}
}

// ends is a metric that only the goroutine of a queue's timer sets, which does nothing else.
type ends struct{}

// Set ends that goroutine. Its deferred functions stop the timer and unlock the queue.
func (ends) Set(float64) { runtime.Goexit() }
