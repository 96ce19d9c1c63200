package stats

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/cgroups"
)

// Summary returns the usage of the node and its pods in the form of /stats/summary. With
// onlyCPUAndMemory, it returns nothing else, and it neither calls the runtime nor walks through
// directories. What cannot be read is left out.
func (c *Collector) Summary(ctx context.Context, onlyCPUAndMemory bool) *statsapi.Summary {
	r := c.read(ctx, !onlyCPUAndMemory)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out := &statsapi.Summary{Node: c.nodeStats(&r.node, onlyCPUAndMemory), Pods: []statsapi.PodStats{}}
	var layers map[string]layer
	if !onlyCPUAndMemory {
		where, all := c.disksOf(), c.layersOf("", layersPeriod)
		found, _ := where.value(ctx)
		out.Node.Runtime = found.stats
		layers, _ = all.value(ctx)
	}
	for i := range r.pods {
		stats := podStats(&r.pods[i])
		if !onlyCPUAndMemory {
			c.addDisks(ctx, &r.pods[i], &stats, &out.Node, layers)
			stats.Network = network(r.pods[i].network, r.pods[i].at)
			stats.ProcessStats = &statsapi.ProcessStats{ProcessCount: new(r.pods[i].usage.Processes)}
		}
		out.Pods = append(out.Pods, stats)
	}
	return out
}

func (c *Collector) nodeStats(n *nodeReading, onlyCPUAndMemory bool) statsapi.NodeStats {
	at := metav1.NewTime(n.at)
	used, working := n.usedMemory()
	pods := memory(n.pods, n.at)
	most := n.podsMemoryLimit
	if most == 0 {
		most = n.memory["MemTotal"] // all of the machine's
	}
	pods.AvailableBytes = new(most - min(most, n.pods.WorkingSet))
	out := statsapi.NodeStats{
		NodeName: c.cfg.Node, StartTime: metav1.NewTime(n.boot),
		CPU: &statsapi.CPUStats{Time: at, UsageNanoCores: n.nanoCores, UsageCoreNanoSeconds: new(uint64(n.cpu))},
		Memory: &statsapi.MemoryStats{
			Time:            at,
			UsageBytes:      new(used),
			WorkingSetBytes: new(working),
			AvailableBytes:  new(n.memory["MemTotal"] - min(n.memory["MemTotal"], working)),
			RSSBytes:        new(n.memory["AnonPages"]),
			PageFaults:      new(n.vm["pgfault"]),
			MajorPageFaults: new(n.vm["pgmajfault"]),
		},
		Swap: &statsapi.SwapStats{
			Time:               at,
			SwapAvailableBytes: new(n.memory["SwapFree"]),
			SwapUsageBytes:     new(n.memory["SwapTotal"] - min(n.memory["SwapTotal"], n.memory["SwapFree"])),
		},
		SystemContainers: []statsapi.ContainerStats{
			{
				Name:      "pods",
				StartTime: metav1.NewTime(n.boot),
				CPU:       cpu(n.pods, n.podsNanoCores, n.at),
				Memory:    pods,
				Swap:      swap(n.pods, n.at),
			},
			{
				Name: "kubelet", StartTime: metav1.NewTime(n.agent.started),
				CPU: &statsapi.CPUStats{
					Time:                 at,
					UsageNanoCores:       n.agentNanoCores,
					UsageCoreNanoSeconds: new(uint64(n.agent.cpu)),
				},
				Memory: &statsapi.MemoryStats{
					Time:            at,
					UsageBytes:      new(n.agent.rss),
					WorkingSetBytes: new(n.agent.rss),
					RSSBytes:        new(n.agent.rss),
				},
			},
		},
	}
	if !onlyCPUAndMemory {
		out.Network = network(n.network, n.at)
		out.Rlimit = &statsapi.RlimitStats{Time: at, MaxPID: new(n.maxPID), NumOfRunningProcesses: new(n.processes)}
		out.Fs = fileSystem(c.cfg.RootDir, n.at)
	}
	return out
}

func podStats(p *podReading) statsapi.PodStats {
	out := statsapi.PodStats{
		PodRef:     statsapi.PodReference{Name: p.pod.Name, Namespace: p.pod.Namespace, UID: string(p.pod.UID)},
		CPU:        cpu(p.usage, p.nanoCores, p.at),
		Memory:     memory(p.usage, p.at),
		Swap:       swap(p.usage, p.at),
		IO:         io(p.usage, p.at),
		Containers: []statsapi.ContainerStats{},
	}
	if p.pod.Status.StartTime != nil {
		out.StartTime = *p.pod.Status.StartTime
	}
	for _, k := range p.containers {
		s := statsapi.ContainerStats{
			Name:      k.name,
			StartTime: metav1.NewTime(k.started),
			CPU:       cpu(k.usage, k.nanoCores, k.at),
			Memory:    memory(k.usage, k.at),
			Swap:      swap(k.usage, k.at),
			IO:        io(k.usage, k.at),
		}
		if limit, ok := memoryLimit(p.pod, k.name); ok {
			s.Memory.AvailableBytes = new(limit - min(limit, k.usage.WorkingSet))
		}
		out.Containers = append(out.Containers, s)
	}
	return out
}

// memoryLimit returns a container's memory limit in bytes.
func memoryLimit(pod *v1.Pod, name string) (uint64, bool) {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				limit := list[i].Resources.Limits.Memory().Value()
				return uint64(max(0, limit)), limit > 0
			}
		}
	}
	return 0, false
}

// addDisks adds how much of the node's disks the pod uses. The sum of its local storage is without
// what is not known yet.
func (c *Collector) addDisks(
	ctx context.Context, p *podReading, out *statsapi.PodStats, node *statsapi.NodeStats, layers map[string]layer,
) {
	var total size
	out.VolumeStats, total = c.volumes(ctx, p.pod, false)
	logsFs := fileSystem(c.cfg.PodLogsDir, p.at)
	for i, k := range p.containers {
		logs, known := c.logs(ctx, p.pod, k.name)
		out.Containers[i].Logs = within(logsFs, logs, known)
		total.bytes, total.inodes = total.bytes+logs.bytes, total.inodes+logs.inodes
		own := layers[k.id]
		if !own.known {
			continue
		}
		total.bytes, total.inodes = total.bytes+own.used.bytes, total.inodes+own.used.inodes
		if node.Runtime != nil {
			out.Containers[i].Rootfs = within(node.Runtime.ContainerFs, own.used, true)
		}
	}
	own := c.own(p.pod.UID)
	total.bytes, total.inodes = total.bytes+own.bytes, total.inodes+own.inodes
	out.EphemeralStorage = within(node.Fs, total, true)
}

func cpu(u cgroups.Usage, nanoCores *uint64, at time.Time) *statsapi.CPUStats {
	return &statsapi.CPUStats{
		Time:                 metav1.NewTime(at),
		UsageNanoCores:       nanoCores,
		UsageCoreNanoSeconds: new(uint64(u.CPU)),
		PSI:                  psi(u.CPUPressure),
	}
}

func memory(u cgroups.Usage, at time.Time) *statsapi.MemoryStats {
	return &statsapi.MemoryStats{
		Time: metav1.NewTime(at), UsageBytes: new(u.Memory), WorkingSetBytes: new(u.WorkingSet), RSSBytes: new(u.RSS),
		PageFaults: new(u.PageFaults), MajorPageFaults: new(u.MajorPageFaults), PSI: psi(u.MemoryPressure),
	}
}

func swap(u cgroups.Usage, at time.Time) *statsapi.SwapStats {
	s := &statsapi.SwapStats{Time: metav1.NewTime(at), SwapUsageBytes: new(u.Swap)}
	if u.SwapLimit != nil {
		s.SwapAvailableBytes = new(*u.SwapLimit - min(*u.SwapLimit, u.Swap))
	}
	return s
}

func io(u cgroups.Usage, at time.Time) *statsapi.IOStats {
	if u.IOPressure == nil {
		return nil
	}
	return &statsapi.IOStats{Time: metav1.NewTime(at), PSI: psi(u.IOPressure)}
}

func psi(p *cgroups.Pressure) *statsapi.PSIStats {
	if p == nil {
		return nil
	}
	data := func(s cgroups.Stall) statsapi.PSIData {
		return statsapi.PSIData{Total: uint64(s.Total), Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
	}
	return &statsapi.PSIStats{Some: data(p.Some), Full: data(p.Full)}
}

// network returns the stats of the interfaces; nil if there are none. The first interface is the
// default one.
func network(links []link, at time.Time) *statsapi.NetworkStats {
	if len(links) == 0 {
		return nil
	}
	out := &statsapi.NetworkStats{Time: metav1.NewTime(at)}
	for _, l := range links {
		out.Interfaces = append(out.Interfaces, statsapi.InterfaceStats{
			Name:     l.name,
			RxBytes:  new(l.rxBytes),
			RxErrors: new(l.rxErrors),
			TxBytes:  new(l.txBytes),
			TxErrors: new(l.txErrors),
		})
	}
	out.InterfaceStats = out.Interfaces[0]
	return out
}
