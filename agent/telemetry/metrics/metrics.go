// Package metrics has the agent's Prometheus metrics, under the kubelet's names if the kubelet has
// them.
//
// Purpose: one registry, which the agent's parts fill through methods, and which is served at
// /metrics.
//
// Truth owned: counters and durations since the agent's start.
//
// Concurrency: a [Set] is safe for concurrent use.
package metrics

import (
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/probes"
)

// Set is the agent's metrics. Make it with [New].
type Set struct {
	// Registry gathers all metrics but those of probes, which Probes gathers.
	Registry, Probes *prometheus.Registry

	pods      podMetrics
	life      *lifecycleMetrics
	starts    *starts
	relists   *relistMetrics
	runtime   runtimeMetrics
	probes    probeMetrics
	hooks     hookMetrics
	api       *prometheus.CounterVec
	csi       *prometheus.HistogramVec
	storage   *prometheus.HistogramVec
	images    imageMetrics
	evictions evictionMetrics
	shutdown  shutdownMetrics
	devices   deviceMetrics
}

// podMetrics are about syncs and starts.
type podMetrics struct {
	syncs       *prometheus.HistogramVec
	steps       *prometheus.HistogramVec
	rejections  *prometheus.CounterVec
	start       prometheus.Histogram
	started     *prometheus.CounterVec
	ended       *prometheus.CounterVec
	startErrors *prometheus.CounterVec
	exitSeen    prometheus.Histogram
	manifests   prometheus.Gauge
	panics      prometheus.Counter
}

// runtimeMetrics are about calls to the runtime.
type runtimeMetrics struct {
	operations *prometheus.CounterVec
	failures   *prometheus.CounterVec
	durations  *prometheus.HistogramVec
	pods       prometheus.Counter
	podErrors  prometheus.Counter
	// private and privateErrors count pods with a user namespace of their own.
	private, privateErrors prometheus.Counter
	pulls                  *prometheus.HistogramVec
}

// probeMetrics are about probes. A pod's series are dropped with the pod.
type probeMetrics struct {
	total *prometheus.CounterVec
	time  *prometheus.HistogramVec
	busy  *prometheus.CounterVec
}

// buckets are from a millisecond to two minutes, in seconds.
func buckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120}
}

// New returns an empty set for the node of that name and the agent's version. Names and labels are
// those of kubelet 1.36 (pkg/kubelet/metrics); the names of berth's own metrics begin with berth_.
func New(node, version string) *Set {
	s := &Set{Registry: prometheus.NewRegistry(), Probes: prometheus.NewRegistry()}
	s.pods = podMetrics{
		syncs: s.histograms("kubelet_pod_worker_duration_seconds",
			"Duration in seconds of one sync of a pod, by kind of sync.", "operation_type"),
		steps: s.histograms("berth_step_duration_seconds",
			"Duration in seconds of one step of a sync, by step and outcome.", "step", "outcome"),
		rejections: s.counters("kubelet_admission_rejections_total", "Pods refused by admission, by reason.",
			"reason"),
		start: s.histogram("kubelet_pod_start_duration_seconds",
			"Duration in seconds from seeing a pod to its containers running."),
		started: s.counters("kubelet_started_containers_total", "Containers of which a start was tried, by type.",
			"container_type"),
		ended: s.counters("kubelet_terminated_containers_total",
			"Containers that have ended, by type, exit code and reason.", "container_type", "exit_code", "reason"),
		startErrors: s.counters("kubelet_started_containers_errors_total",
			"Containers that could not be started, by type and class of error.", "container_type", "code"),
		exitSeen: s.histogram("berth_container_exit_seen_seconds",
			"Duration in seconds from a container's end to the agent seeing it."),
		manifests: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_manifests_rejected", Help: "Manifest documents that are refused now.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "berth_pod_sync_panics_total",
			Help: "Panics of the agent's own code in syncs of pods: each is a defect of the agent.",
		}),
	}
	s.runtime = s.newRuntime()
	s.probes = probeMetrics{
		total: countersIn(s.Probes, "prober_probe_total", "Probes of a container, by kind and result.", "probe_type",
			"result", "container", "pod", "namespace", "pod_uid"),
		time: histogramsIn(s.Probes, "prober_probe_duration_seconds", "Duration in seconds of a probe.", "probe_type",
			"container", "pod", "namespace"),
		busy: countersIn(s.Probes, "berth_probe_exec_seconds_total",
			"Seconds that the runtime ran commands for an exec probe.", "probe_type", "container", "pod", "namespace"),
	}
	s.life = s.newLifecycle()
	s.starts, s.relists = s.newStarts(), s.newRelists()
	s.hooks = s.hookMetrics()
	s.csi, s.storage, s.images = s.csiHistogram(), s.newStorage(), s.imageMetrics()
	s.evictions, s.shutdown, s.devices = s.evictionMetrics(), s.shutdownMetrics(), s.newDevices()
	s.api = s.counters("rest_client_requests_total", "Requests to the API server, by status code, method and host.",
		"code", "method", "host")
	s.Registry.MustRegister(s.pods.manifests, s.pods.panics,
		constant("kubelet_node_name", "The node's name; always 1.", "node", node),
		constant("berth_build_info", "berth's version; always 1.", "version", version),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	return s
}

func (s *Set) newRuntime() runtimeMetrics {
	m := runtimeMetrics{
		operations: s.counters("kubelet_runtime_operations_total", "Runtime operations, by type.", "operation_type"),
		failures: s.counters("kubelet_runtime_operations_errors_total", "Runtime operations that failed, by type.",
			"operation_type"),
		durations: s.histograms("kubelet_runtime_operations_duration_seconds",
			"Duration in seconds of runtime operations, by type.", "operation_type"),
		pods: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_started_pods_total", Help: "Pod sandboxes of which a start was tried.",
		}),
		podErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_started_pods_errors_total", Help: "Pod sandboxes that could not be started.",
		}),
		private: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_started_user_namespaced_pods_total",
			Help: "Pod sandboxes with a user namespace of which a start was tried.",
		}),
		privateErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_started_user_namespaced_pods_errors_total",
			Help: "Pod sandboxes with a user namespace that could not be started.",
		}),
		pulls: s.pullHistogram(),
	}
	s.Registry.MustRegister(m.pods, m.podErrors, m.private, m.privateErrors)
	return m
}

// constant makes a gauge that is always 1; its label holds the value.
func constant(name, help, label, value string) prometheus.Collector {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
	v.WithLabelValues(value).Set(1)
	return v
}

func (s *Set) histogram(name, help string) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets()})
	s.Registry.MustRegister(h)
	return h
}

func (s *Set) histograms(name, help string, labels ...string) *prometheus.HistogramVec {
	return histogramsIn(s.Registry, name, help, labels...)
}

func histogramsIn(registry *prometheus.Registry, name, help string, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets()}, labels)
	registry.MustRegister(v)
	return v
}

func (s *Set) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return countersIn(s.Registry, name, help, labels...)
}

func countersIn(registry *prometheus.Registry, name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	registry.MustRegister(v)
	return v
}

// Panicked counts a panic in a sync of a pod.
func (s *Set) Panicked() { s.pods.panics.Inc() }

// Synced counts a sync of a pod. kind is sync, terminating or terminated.
func (s *Set) Synced(kind string, d time.Duration) {
	s.pods.syncs.WithLabelValues(kind).Observe(d.Seconds())
}

// Step counts a step of a sync.
func (s *Set) Step(step, outcome string, d time.Duration) {
	s.pods.steps.WithLabelValues(step, outcome).Observe(d.Seconds())
}

// Operation counts a call to the runtime. operation is its name as in the Config.Observe of
// cri/remote.
func (s *Set) Operation(operation string, d time.Duration, err error) {
	s.runtime.operations.WithLabelValues(operation).Inc()
	s.runtime.durations.WithLabelValues(operation).Observe(d.Seconds())
	if err != nil {
		s.runtime.failures.WithLabelValues(operation).Inc()
	}
	if operation == "run_podsandbox" {
		s.runtime.pods.Inc()
		if err != nil {
			s.runtime.podErrors.Inc()
		}
	}
}

// UserNamespaced counts an attempt to start a sandbox with a user namespace.
func (s *Set) UserNamespaced(err error) {
	s.runtime.private.Inc()
	if err != nil {
		s.runtime.privateErrors.Inc()
	}
}

// PodStarted records how long a pod took from when it was first seen until its containers ran.
func (s *Set) PodStarted(d time.Duration) { s.pods.start.Observe(d.Seconds()) }

// ContainerStarted counts an attempt to start a container. kind is init, app or ephemeral.
func (s *Set) ContainerStarted(kind string, err error) {
	switch kind {
	case "app":
		kind = "container"
	case "init", "ephemeral":
		kind += "_container"
	}
	s.pods.started.WithLabelValues(kind).Inc()
	if err != nil {
		s.pods.startErrors.WithLabelValues(kind, code(err)).Inc()
	}
}

// code names the class of an error; there are few classes.
func code(err error) string {
	switch {
	case errdefs.IsNotFound(err):
		return "NotFound"
	case errdefs.IsUnavailable(err):
		return "Unavailable"
	case errdefs.IsDeadlineExceeded(err):
		return "DeadlineExceeded"
	case errdefs.IsCanceled(err):
		return "Canceled"
	default:
		return "Unknown"
	}
}

// APIRequest counts a request to the API server; it fits Config.Observe of the cluster connection.
func (s *Set) APIRequest(method, host, code string) { s.api.WithLabelValues(code, method, host).Inc() }

// ContainerEnded counts the end of an attempt of a container. kind is container, init_container or
// ephemeral_container.
func (s *Set) ContainerEnded(kind string, exitCode int32, reason string) {
	s.pods.ended.WithLabelValues(kind, strconv.Itoa(int(exitCode)), reason).Inc()
}

// ManifestsRejected sets how many manifest documents are refused now.
func (s *Set) ManifestsRejected(n int) { s.pods.manifests.Set(float64(n)) }

// ExitSeen records how late a container's end was seen.
func (s *Set) ExitSeen(d time.Duration) { s.pods.exitSeen.Observe(max(d, 0).Seconds()) }

// Probe counts a probe that ran; it fits probes.Deps.Observe.
func (s *Set) Probe(o probes.Observation) {
	s.probes.total.WithLabelValues(string(o.Kind), o.Result, o.Container, o.Pod, o.Namespace, string(o.UID)).Inc()
	s.probes.time.WithLabelValues(string(o.Kind), o.Container, o.Pod, o.Namespace).Observe(o.Duration.Seconds())
	if o.Action == probes.ActionExec {
		s.probes.busy.WithLabelValues(string(o.Kind), o.Container, o.Pod, o.Namespace).Add(o.Busy.Seconds())
	}
}

// ForgetPod drops the series of a removed pod. Call it after the pod's probes have ended and before
// those of its successor begin.
func (s *Set) ForgetPod(namespace, name string, uid types.UID) {
	s.probes.total.DeletePartialMatch(prometheus.Labels{"pod_uid": string(uid)})
	for _, byName := range []*prometheus.MetricVec{s.probes.time.MetricVec, s.probes.busy.MetricVec} {
		byName.DeletePartialMatch(prometheus.Labels{"namespace": namespace, "pod": name})
	}
	s.starts.forget(uid)
}

// Running adds the counts of running pods and containers. count is called when metrics are
// gathered; it returns how many pods have a ready sandbox, and how many containers there are by
// state (created, running, exited, unknown). count must be quick and safe for concurrent use, and
// it must not call the runtime. Call Running once.
func (s *Set) Running(count func() (pods int, containers map[string]int)) {
	s.Registry.MustRegister(&running{
		count: count,
		pods:  prometheus.NewDesc("kubelet_running_pods", "Pods that have a running sandbox.", nil, nil),
		containers: prometheus.NewDesc("kubelet_running_containers", "Containers, by state.",
			[]string{"container_state"}, nil),
	})
}

// running is the collector behind [Set.Running].
type running struct {
	count            func() (pods int, containers map[string]int)
	pods, containers *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (r *running) Describe(ch chan<- *prometheus.Desc) {
	ch <- r.pods
	ch <- r.containers
}

// Collect implements prometheus.Collector.
func (r *running) Collect(ch chan<- prometheus.Metric) {
	pods, containers := r.count()
	ch <- prometheus.MustNewConstMetric(r.pods, prometheus.GaugeValue, float64(pods))
	for state, n := range containers {
		ch <- prometheus.MustNewConstMetric(r.containers, prometheus.GaugeValue, float64(n), state)
	}
}
