package stats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
)

// emitter collects the metrics of one scrape.
type emitter struct {
	descriptions map[string]*prometheus.Desc
	metrics      []prometheus.Metric
}

// family describes a metric of a scrape.
type family struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
}

// add adds a sample with the time at; a zero time leaves the time out. It leaves out a sample whose
// labels are not UTF-8, so that the scrape has the others.
func (e *emitter) add(f family, at time.Time, value float64, labels ...string) {
	if e.descriptions == nil {
		e.descriptions = map[string]*prometheus.Desc{}
	}
	desc := e.descriptions[f.name]
	if desc == nil {
		desc = prometheus.NewDesc(f.name, f.help, f.labels, nil)
		e.descriptions[f.name] = desc
	}
	m, err := prometheus.NewConstMetric(desc, f.kind, value, labels...)
	if err != nil {
		return
	}
	if !at.IsZero() {
		m = prometheus.NewMetricWithTimestamp(at, m)
	}
	e.metrics = append(e.metrics, m)
}

// Describe implements prometheus.Collector. It describes nothing, because the metrics are known
// only after a reading.
func (e *emitter) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (e *emitter) Collect(out chan<- prometheus.Metric) {
	for _, m := range e.metrics {
		out <- m
	}
}

// gather returns a registry with the metrics that collect adds.
func gather(collect func(*emitter)) prometheus.Gatherer {
	var e emitter
	collect(&e)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&e)
	return registry
}

// The metrics of /metrics/resource, with the names of KEP-2371.
var (
	ofContainer = []string{"container", "namespace", "pod"}
	ofPod       = []string{"namespace", "pod"}

	nodeCPU = family{
		"node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds",
		prometheus.CounterValue, nil,
	}
	nodeMemory = family{
		"node_memory_working_set_bytes", "Current working set of the node in bytes", prometheus.GaugeValue, nil,
	}
	nodeSwap = family{
		"node_swap_usage_bytes", "Current swap usage of the node in bytes", prometheus.GaugeValue, nil,
	}
	containerCPU = family{
		"container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds",
		prometheus.CounterValue, ofContainer,
	}
	containerMem = family{
		"container_memory_working_set_bytes", "Current working set of the container in bytes", prometheus.GaugeValue,
		ofContainer,
	}
	containerSwap = family{
		"container_swap_usage_bytes", "Current swap usage of the container in bytes", prometheus.GaugeValue,
		ofContainer,
	}
	containerSwapLimit = family{
		"container_swap_limit_bytes", "Swap limit of the container in bytes, if it has one", prometheus.GaugeValue,
		ofContainer,
	}
	containerTime = family{
		"container_start_time_seconds", "Start time of the container since unix epoch in seconds",
		prometheus.GaugeValue, ofContainer,
	}
	podCPU = family{
		"pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds",
		prometheus.CounterValue, ofPod,
	}
	podMemory = family{
		"pod_memory_working_set_bytes", "Current working set of the pod in bytes", prometheus.GaugeValue, ofPod,
	}
	podSwap = family{
		"pod_swap_usage_bytes", "Current swap usage of the pod in bytes", prometheus.GaugeValue, ofPod,
	}
	scrapeError = family{
		"resource_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise",
		prometheus.GaugeValue, nil,
	}
)

// Resource reads the metrics of /metrics/resource, which metrics-server reads.
func (c *Collector) Resource() prometheus.Gatherer {
	return gather(func(e *emitter) {
		r := c.readOnce(false)
		_, working := r.node.usedMemory()
		e.add(nodeCPU, r.node.at, r.node.cpu.Seconds())
		e.add(nodeMemory, r.node.at, float64(working))
		e.add(nodeSwap, r.node.at,
			float64(r.node.memory["SwapTotal"]-min(r.node.memory["SwapTotal"], r.node.memory["SwapFree"])))
		owners := ownersOf(r.pods)
		for i := range r.pods {
			p := &r.pods[i]
			if owners[pods.FullName(p.pod)] != p.pod {
				continue
			}
			for _, k := range p.containers {
				labels := []string{k.name, p.pod.Namespace, p.pod.Name}
				e.add(containerCPU, k.at, k.usage.CPU.Seconds(), labels...)
				e.add(containerMem, k.at, float64(k.usage.WorkingSet), labels...)
				e.add(containerSwap, k.at, float64(k.usage.Swap), labels...)
				if k.usage.SwapLimit != nil {
					e.add(containerSwapLimit, k.at, float64(*k.usage.SwapLimit), labels...)
				}
				e.add(containerTime, time.Time{}, seconds(k.started), labels...)
			}
			e.add(podCPU, p.at, p.usage.CPU.Seconds(), p.pod.Namespace, p.pod.Name)
			e.add(podMemory, p.at, float64(p.usage.WorkingSet), p.pod.Namespace, p.pod.Name)
			e.add(podSwap, p.at, float64(p.usage.Swap), p.pod.Namespace, p.pod.Name)
		}
		failed := 0.0
		if len(r.node.memory) == 0 {
			failed = 1
		}
		e.add(scrapeError, time.Time{}, failed)
	})
}

// ownersOf returns the pods that have the metrics of their full names. A pod of the API server may
// have a static pod's name: then the static pod has them, because only the node's owner can make
// one.
func ownersOf(readings []podReading) map[string]*v1.Pod {
	out := map[string]*v1.Pod{}
	for i := range readings {
		pod := readings[i].pod
		name := pods.FullName(pod)
		if other := out[name]; other == nil || pods.Static(pod) && !pods.Static(other) {
			out[name] = pod
		}
	}
	return out
}

// seconds returns a time as Unix seconds with fractions.
func seconds(at time.Time) float64 { return float64(at.UnixNano()) / 1e9 }
