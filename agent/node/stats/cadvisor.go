package stats

import (
	"context"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/cgroups"
	"github.com/berthd/berth/internal/pods"
)

// cgroupLabels are the labels of cAdvisor's metrics of a cgroup. For the machine and for pods, some
// of them are empty.
var cgroupLabels = []string{"container", "id", "image", "name", "namespace", "pod"}

// linkLabels are those of a pod's network metrics.
var linkLabels = append([]string{"interface"}, cgroupLabels...)

func counter(name, help string) family {
	return family{name, help, prometheus.CounterValue, cgroupLabels}
}

func gauge(name, help string) family {
	return family{name, help, prometheus.GaugeValue, cgroupLabels}
}

func moved(name, help string) family {
	return family{name, help, prometheus.CounterValue, linkLabels}
}

// ofCgroup are the metrics of each cgroup. The names are cAdvisor's, because dashboards use them.
var ofCgroup = []struct {
	family
	value func(u *cgroups.Usage) float64
}{
	{
		counter("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds."),
		func(u *cgroups.Usage) float64 { return u.CPU.Seconds() },
	},
	{
		gauge("container_memory_usage_bytes",
			"Current memory usage in bytes, including all memory regardless of when it was accessed"),
		func(u *cgroups.Usage) float64 { return float64(u.Memory) },
	},
	{
		gauge("container_memory_working_set_bytes", "Current working set in bytes."),
		func(u *cgroups.Usage) float64 { return float64(u.WorkingSet) },
	},
	{gauge("container_memory_rss", "Size of RSS in bytes."), func(u *cgroups.Usage) float64 { return float64(u.RSS) }},
	{
		gauge("container_memory_cache", "Number of bytes of page cache memory."),
		func(u *cgroups.Usage) float64 { return float64(u.Cache) },
	},
	{
		gauge("container_memory_swap", "Container swap usage in bytes."),
		func(u *cgroups.Usage) float64 { return float64(u.Swap) },
	},
}

// ofPressure are the metrics of each cgroup, if the kernel reports pressure.
var ofPressure = []struct {
	family
	value func(u *cgroups.Usage) time.Duration
}{
	{
		counter("container_pressure_cpu_waiting_seconds_total",
			"Total time duration tasks in the container have waited due to CPU congestion."),
		func(u *cgroups.Usage) time.Duration { return u.CPUPressure.Some.Total },
	},
	{
		counter("container_pressure_cpu_stalled_seconds_total",
			"Total time duration no tasks in the container could make progress due to CPU congestion."),
		func(u *cgroups.Usage) time.Duration { return u.CPUPressure.Full.Total },
	},
	{
		counter("container_pressure_memory_waiting_seconds_total",
			"Total time duration tasks in the container have waited due to memory congestion."),
		func(u *cgroups.Usage) time.Duration { return u.MemoryPressure.Some.Total },
	},
	{
		counter("container_pressure_memory_stalled_seconds_total",
			"Total time duration no tasks in the container could make progress due to memory congestion."),
		func(u *cgroups.Usage) time.Duration { return u.MemoryPressure.Full.Total },
	},
	{
		counter("container_pressure_io_waiting_seconds_total",
			"Total time duration tasks in the container have waited due to IO congestion."),
		func(u *cgroups.Usage) time.Duration { return u.IOPressure.Some.Total },
	},
	{
		counter("container_pressure_io_stalled_seconds_total",
			"Total time duration no tasks in the container could make progress due to IO congestion."),
		func(u *cgroups.Usage) time.Duration { return u.IOPressure.Full.Total },
	},
}

// ofLink are the metrics of each network interface of a pod.
var ofLink = []struct {
	family
	value func(l *link) uint64
}{
	{
		moved("container_network_receive_bytes_total", "Cumulative count of bytes received"),
		func(l *link) uint64 { return l.rxBytes },
	},
	{
		moved("container_network_receive_packets_total", "Cumulative count of packets received"),
		func(l *link) uint64 { return l.rxPackets },
	},
	{
		moved("container_network_receive_errors_total", "Cumulative count of errors encountered while receiving"),
		func(l *link) uint64 { return l.rxErrors },
	},
	{
		moved("container_network_receive_packets_dropped_total", "Cumulative count of packets dropped while receiving"),
		func(l *link) uint64 { return l.rxDrop },
	},
	{
		moved("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted"),
		func(l *link) uint64 { return l.txBytes },
	},
	{
		moved("container_network_transmit_packets_total", "Cumulative count of packets transmitted"),
		func(l *link) uint64 { return l.txPackets },
	},
	{
		moved("container_network_transmit_errors_total", "Cumulative count of errors encountered while transmitting"),
		func(l *link) uint64 { return l.txErrors },
	},
	{
		moved("container_network_transmit_packets_dropped_total",
			"Cumulative count of packets dropped while transmitting"), func(l *link) uint64 { return l.txDrop },
	},
}

var (
	processes     = gauge("container_processes", "Number of processes running inside the container.")
	startTime     = gauge("container_start_time_seconds", "Start time of the container since unix epoch in seconds.")
	lastSeen      = gauge("container_last_seen", "Last time a container was seen by the exporter")
	machineCores  = family{"machine_cpu_cores", "Number of logical CPU cores.", prometheus.GaugeValue, nil}
	machineMemory = family{
		"machine_memory_bytes", "Amount of memory installed on the machine.", prometheus.GaugeValue, nil,
	}
)

// Cadvisor returns those of cAdvisor's metrics that can be read without cAdvisor.
func (c *Collector) Cadvisor() prometheus.Gatherer {
	return gather(func(e *emitter) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r := c.readOnce(true)
		running := c.running(&r)
		e.add(machineCores, time.Time{}, float64(runtime.NumCPU()))
		e.add(machineMemory, time.Time{}, float64(r.node.memory["MemTotal"]))
		if root, err := c.cgroups().Usage("/"); err == nil {
			e.cgroup(&root, r.at, "", "/", "", "", "", "")
			c.details(e, &root, "/", r.at, "", "/", "", "", "", "")
			e.add(processes, r.at, float64(root.Processes), "", "/", "", "", "", "")
		}
		all := c.cgroups().Layout().PodsPath()
		e.cgroup(&r.node.pods, r.node.at, "", all, "", "", "", "")
		c.details(e, &r.node.pods, all, r.node.at, "", all, "", "", "", "")
		e.add(processes, r.node.at, float64(r.node.pods.Processes), "", all, "", "", "", "")
		layers := c.scrapeLayers(ctx, &r)
		owners := ownersOf(r.pods)
		for i := range r.pods {
			c.addPod(e, &r.pods[i], owners)
			for _, k := range r.pods[i].containers {
				labels := []string{k.name, k.path, k.image, k.id, r.pods[i].pod.Namespace, r.pods[i].pod.Name}
				c.addContainer(e, &k, labels)
				of := running[k.id]
				e.add(processes, k.at, float64(len(of.pids)), labels...)
				c.addOpenFiles(ctx, e, of, labels)
				if own := layers[k.id]; own.known {
					e.add(layerUsage, time.Time{}, float64(own.used.bytes), append([]string{own.device}, labels...)...)
				}
			}
		}
	})
}

// addPod adds the metrics of a pod without those of its containers. If pods have no cgroups, only
// their names tell them apart.
func (c *Collector) addPod(e *emitter, p *podReading, owners map[string]*v1.Pod) {
	labels := []string{"", p.path, "", "", p.pod.Namespace, p.pod.Name}
	if p.path != "" {
		e.cgroup(&p.usage, p.at, labels...)
		c.details(e, &p.usage, p.path, p.at, labels...)
		e.add(processes, p.at, float64(len(c.cgroups().Processes(p.path))), labels...)
	} else if owners[pods.FullName(p.pod)] != p.pod {
		return
	}
	for j := range p.network {
		for _, m := range ofLink {
			e.add(m.family, p.at, float64(m.value(&p.network[j])), append([]string{p.network[j].name}, labels...)...)
		}
	}
}

// addContainer adds the metrics of a container that are in its reading.
func (c *Collector) addContainer(e *emitter, k *containerReading, labels []string) {
	e.cgroup(&k.usage, k.at, labels...)
	e.add(startTime, time.Time{}, seconds(k.started), labels...)
	e.add(lastSeen, time.Time{}, float64(k.at.Unix()), labels...)
	c.details(e, &k.usage, k.path, k.at, labels...)
}

// cgroup adds the metrics of one cgroup.
func (e *emitter) cgroup(u *cgroups.Usage, at time.Time, labels ...string) {
	for _, m := range ofCgroup {
		e.add(m.family, at, m.value(u), labels...)
	}
	if u.CPUPressure == nil || u.MemoryPressure == nil || u.IOPressure == nil {
		return
	}
	for _, m := range ofPressure {
		e.add(m.family, at, m.value(u).Seconds(), labels...)
	}
}
