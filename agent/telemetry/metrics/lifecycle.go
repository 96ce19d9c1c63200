package metrics

import (
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/configs"
)

// lifecycleMetrics are about the way of pods through the agent: from their sources to workers,
// sandboxes and the API server. Names, labels and buckets are the kubelet's.
type lifecycleMetrics struct {
	workerStart   prometheus.Histogram
	statusWritten prometheus.Histogram
	sandboxes     *prometheus.HistogramVec
	sandboxErrors *prometheus.CounterVec
	cgroups       *prometheus.HistogramVec
	orphaned      prometheus.Counter
	restarted     *prometheus.CounterVec
}

func (s *Set) newLifecycle() *lifecycleMetrics {
	m := &lifecycleMetrics{
		workerStart: s.histogramOf("kubelet_pod_worker_start_duration_seconds",
			"Duration in seconds from seeing a pod to its worker's first sync.", prometheus.DefBuckets),
		statusWritten: s.histogramOf("kubelet_pod_status_sync_duration_seconds",
			"Duration in seconds from a change of a pod's status until the API server has the status.",
			[]float64{.01, .05, .1, .5, 1, 5, 10, 20, 30, 45, 60}),
		sandboxes: s.histogramsOf("kubelet_run_podsandbox_duration_seconds",
			"Duration in seconds of running a sandbox, by runtime handler.", prometheus.DefBuckets, "runtime_handler"),
		sandboxErrors: s.counters("kubelet_run_podsandbox_errors_total",
			"Sandboxes that could not be run, by runtime handler.", "runtime_handler"),
		cgroups: s.histogramsOf("kubelet_cgroup_manager_duration_seconds",
			"Duration in seconds of operations on cgroups of pods, by operation (create, update, destroy).",
			prometheus.DefBuckets, "operation_type"),
		orphaned: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_orphaned_runtime_pods_total",
			Help: "Pods that were found in the runtime and that the agent did not know.",
		}),
		restarted: s.counters("kubelet_restarted_pods_total",
			"Pods that were removed and came back with the same UID, by whether they are static.", "static"),
	}
	s.Registry.MustRegister(m.orphaned)
	return m
}

// WorkerStarted records how long a pod took from when it was first seen until its first sync.
func (s *Set) WorkerStarted(d time.Duration) { s.life.workerStart.Observe(max(d, 0).Seconds()) }

// StatusWritten records that the API server has accepted a pod's status, and for how long it did
// not have the status.
func (s *Set) StatusWritten(pod *v1.Pod, behind time.Duration) {
	s.life.statusWritten.Observe(max(behind, 0).Seconds())
	s.PodStatus(pod, &pod.Status, pod.CreationTimestamp.Time)
}

// SandboxRun records an attempt to run a sandbox. handler is the runtime handler, empty for the
// runtime's own choice.
func (s *Set) SandboxRun(handler string, d time.Duration, err error) {
	s.life.sandboxes.WithLabelValues(handler).Observe(d.Seconds())
	if err != nil {
		s.life.sandboxErrors.WithLabelValues(handler).Inc()
	}
}

// CgroupOperation records an operation on a cgroup; it fits cgroups.Deps.Observe.
func (s *Set) CgroupOperation(operation string, took time.Duration) {
	s.life.cgroups.WithLabelValues(operation).Observe(took.Seconds())
}

// PodOrphaned counts a pod that was found in the runtime and that the agent did not know.
func (s *Set) PodOrphaned() { s.life.orphaned.Inc() }

// PodRestarted counts a pod that was removed and came back with the same UID.
func (s *Set) PodRestarted(static bool) { s.life.restarted.WithLabelValues(staticLabel(static)).Inc() }

// RuntimeUp adds whether the container runtime answers. up is called when metrics are gathered.
// Call RuntimeUp once.
func (s *Set) RuntimeUp(up func() bool) {
	s.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "berth_runtime_up", Help: "1 if the container runtime answers, 0 if it has been silent for 5 seconds.",
	}, func() float64 {
		if up() {
			return 1
		}
		return 0
	}))
}

// ConfigInForce adds whether the config on the disk is refused, and how many of its settings are
// not in force. counts is called when metrics are gathered. Call ConfigInForce once.
func (s *Set) ConfigInForce(counts func() (refused bool, pending int)) {
	s.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "berth_config_error",
		Help: "1 if the config on the disk is refused, so that the agent would not start with it.",
	}, func() float64 {
		if refused, _ := counts(); refused {
			return 1
		}
		return 0
	}), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "berth_config_pending_settings", Help: "Settings of the config on the disk that are not in force.",
	}, func() float64 {
		_, pending := counts()
		return float64(pending)
	}))
}

// PodKind is one class of the pods that the agent has.
type PodKind struct {
	// Lifecycle is sync, terminating or terminated.
	Lifecycle string
	// Wanted says that a source wants the pod. Static says that a manifest has it.
	Wanted, Static bool
	// Active says that the pod has not come to its end: it counts at admission.
	Active bool
}

// Pods adds the counts of the pods that the agent has, by class. mirrored says that static pods
// have mirror pods, as on a cluster's node. count is called when metrics are gathered; it must be
// quick and safe for concurrent use. Call Pods once.
func (s *Set) Pods(mirrored bool, count func() map[PodKind]int) {
	s.Registry.MustRegister(&podCounts{
		count:    count,
		mirrored: mirrored,
		mirror: prometheus.NewDesc("kubelet_mirror_pods",
			"Mirror pods that should be there: one for each static pod that counts at admission.", nil, nil),
		desired: prometheus.NewDesc("kubelet_desired_pods", "Pods that the sources want, by whether they are static.",
			[]string{"static"}, nil),
		active: prometheus.NewDesc("kubelet_active_pods",
			"Pods that have not ended and count at admission, by whether they are static.", []string{"static"}, nil),
		working: prometheus.NewDesc("kubelet_working_pods",
			"Pods that have a worker, by the worker's phase, whether a source wants them, and whether they are static.",
			[]string{"lifecycle", "config", "static"}, nil),
	})
}

// podCounts is the collector behind [Set.Pods].
type podCounts struct {
	count                            func() map[PodKind]int
	mirrored                         bool
	desired, active, working, mirror *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *podCounts) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.desired
	ch <- c.active
	ch <- c.working
	ch <- c.mirror
}

// Collect implements prometheus.Collector.
func (c *podCounts) Collect(ch chan<- prometheus.Metric) {
	desired, active := map[bool]int{false: 0, true: 0}, map[bool]int{false: 0, true: 0}
	working := map[[3]string]int{}
	for kind, n := range c.count() {
		config := "orphan"
		if kind.Wanted {
			desired[kind.Static] += n
			config = "desired"
		}
		if kind.Active {
			active[kind.Static] += n
		}
		working[[3]string{kind.Lifecycle, config, staticLabel(kind.Static)}] += n
	}
	for _, static := range []bool{false, true} {
		label := staticLabel(static)
		ch <- prometheus.MustNewConstMetric(c.desired, prometheus.GaugeValue, float64(desired[static]), label)
		ch <- prometheus.MustNewConstMetric(c.active, prometheus.GaugeValue, float64(active[static]), label)
	}
	mirrors := 0
	if c.mirrored {
		mirrors = active[true]
	}
	ch <- prometheus.MustNewConstMetric(c.mirror, prometheus.GaugeValue, float64(mirrors))
	for labels, n := range working {
		ch <- prometheus.MustNewConstMetric(c.working, prometheus.GaugeValue, float64(n), labels[:]...)
	}
}

// staticLabel is the kubelet's value of the label "static".
func staticLabel(static bool) string {
	if static {
		return "true"
	}
	return ""
}

// Constants adds what does not change while the agent runs: the version of the node's cgroups (v1,
// hybrid or v2), the release of Kubernetes that the agent belongs to, and the feature gates. Call
// it once.
func (s *Set) Constants(cgroupVersion, release string, gates []configs.Gate) {
	version := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubelet_cgroup_version", Help: "Version of the node's cgroups, 1 or 2.",
	})
	if version.Set(1); cgroupVersion == "v2" {
		version.Set(2)
	}
	enabled := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_feature_enabled", Help: "Feature gates that the agent looks at: 1 if enabled.",
	}, []string{"name", "stage"})
	for _, gate := range gates {
		// the kubelet's value for GA is empty
		g := enabled.WithLabelValues(gate.Name, strings.TrimSuffix(gate.Stage, "GA"))
		if gate.Enabled {
			g.Set(1)
		}
	}
	major, minor := "", ""
	if parts := strings.SplitN(strings.TrimPrefix(release, "v"), ".", 3); len(parts) > 1 {
		major, minor = parts[0], parts[1]
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubernetes_build_info", Help: "The release of Kubernetes that the agent belongs to; always 1.",
		ConstLabels: prometheus.Labels{
			"major": major, "minor": minor, "git_version": release, "git_commit": "", "git_tree_state": "",
			"build_date": "", "go_version": runtime.Version(), "compiler": runtime.Compiler,
			"platform": runtime.GOOS + "/" + runtime.GOARCH,
		},
	})
	info.Set(1)
	s.Registry.MustRegister(version, enabled, info)
}

func (s *Set) histogramOf(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	s.Registry.MustRegister(h)
	return h
}

func (s *Set) histogramsOf(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	s.Registry.MustRegister(v)
	return v
}
