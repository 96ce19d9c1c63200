// Package metrics has the agent's Prometheus metrics, under the kubelet's names where the kubelet has them.
//
// Purpose: one registry, filled by the agent's parts through methods, served at /metrics.
//
// Truth owned: counters and durations since the agent's start.
//
// Concurrency: a [Set] is safe for concurrent use.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Set is the agent's metrics. Make it with [New].
type Set struct {
	// Registry gathers all of them.
	Registry *prometheus.Registry

	passes       *prometheus.HistogramVec
	steps        *prometheus.HistogramVec
	rejections   *prometheus.CounterVec
	operations   *prometheus.CounterVec
	failures     *prometheus.CounterVec
	durations    *prometheus.HistogramVec
	podStart     prometheus.Histogram
	started      *prometheus.CounterVec
	startErrors  *prometheus.CounterVec
	startedPods  prometheus.Counter
	manifestErrs prometheus.Gauge
	seen         prometheus.Histogram
	probes       *prometheus.CounterVec
	probeTime    *prometheus.HistogramVec
}

// fast are buckets from a millisecond to two minutes, in seconds.
func fast() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120}
}

// New returns an empty set whose node is named node. Names are those of kubelet 1.36 (FEATURES 4.5); berth's own begin with berth_.
func New(node, version string) *Set {
	s := &Set{Registry: prometheus.NewRegistry()}
	s.passes = s.histogram("kubelet_pod_worker_duration_seconds", "Duration in seconds of one pass over a pod, by kind of pass.", "operation_type")
	s.steps = s.histogram("berth_step_duration_seconds", "Duration in seconds of one step of a pass, by step and outcome.", "step", "outcome")
	s.rejections = s.counter("kubelet_admission_rejections_total", "Pods refused by admission, by reason.", "reason")
	s.operations = s.counter("kubelet_runtime_operations_total", "Runtime operations, by type.", "operation_type")
	s.failures = s.counter("kubelet_runtime_operations_errors_total", "Runtime operations that failed, by type.", "operation_type")
	s.durations = s.histogram("kubelet_runtime_operations_duration_seconds", "Duration in seconds of runtime operations, by type.", "operation_type")
	s.podStart = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "kubelet_pod_start_duration_seconds", Help: "Duration in seconds from seeing a pod to its containers running.", Buckets: fast(),
	})
	s.started = s.counter("kubelet_started_containers_total", "Containers started, by kind.", "container_type")
	s.startErrors = s.counter("kubelet_started_containers_errors_total", "Containers that could not be started, by kind.", "container_type")
	s.startedPods = prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_started_pods_total", Help: "Pod sandboxes started."})
	s.manifestErrs = prometheus.NewGauge(prometheus.GaugeOpts{Name: "berth_manifests_rejected", Help: "Manifest documents that are refused now."})
	s.seen = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "berth_container_exit_seen_seconds", Help: "Duration in seconds from a container's end to the agent seeing it.", Buckets: fast(),
	})
	s.probes = s.counter("prober_probe_total", "Probes of a container, by kind and result.", "probe_type", "result", "container", "pod", "namespace", "pod_uid")
	s.probeTime = s.histogram("prober_probe_duration_seconds", "Duration in seconds of a probe.", "probe_type", "container", "pod", "namespace")
	name := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_node_name", Help: "The node's name; always 1."}, []string{"node"})
	name.WithLabelValues(node).Set(1)
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "berth_build_info", Help: "berth's version; always 1."}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	s.Registry.MustRegister(name, build, s.podStart, s.startedPods, s.manifestErrs, s.seen,
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	return s
}

func (s *Set) histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: fast()}, labels)
	s.Registry.MustRegister(v)
	return v
}

func (s *Set) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	s.Registry.MustRegister(v)
	return v
}

// Pass counts a pass over a pod; kind is sync, terminating or terminated.
func (s *Set) Pass(kind string, d time.Duration) {
	s.passes.WithLabelValues(kind).Observe(d.Seconds())
}

// Step counts a step of a pass.
func (s *Set) Step(step, outcome string, d time.Duration) {
	s.steps.WithLabelValues(step, outcome).Observe(d.Seconds())
}

// Rejected counts a pod that admission refused.
func (s *Set) Rejected(reason string) { s.rejections.WithLabelValues(reason).Inc() }

// Operation counts a call to the runtime.
func (s *Set) Operation(operation string, d time.Duration, err error) {
	s.operations.WithLabelValues(operation).Inc()
	s.durations.WithLabelValues(operation).Observe(d.Seconds())
	if err != nil {
		s.failures.WithLabelValues(operation).Inc()
	}
	if operation == "run_podsandbox" && err == nil {
		s.startedPods.Inc()
	}
}

// PodStarted notes how long a pod took from being seen to its containers running.
func (s *Set) PodStarted(d time.Duration) { s.podStart.Observe(d.Seconds()) }

// ContainerStarted counts a container start; kind is init, app or ephemeral.
func (s *Set) ContainerStarted(kind string, err error) {
	s.started.WithLabelValues(kind).Inc()
	if err != nil {
		s.startErrors.WithLabelValues(kind).Inc()
	}
}

// ManifestsRejected sets how many manifest documents are refused now.
func (s *Set) ManifestsRejected(n int) { s.manifestErrs.Set(float64(n)) }

// ExitSeen notes how late a container's end was seen.
func (s *Set) ExitSeen(d time.Duration) { s.seen.Observe(max(d, 0).Seconds()) }
