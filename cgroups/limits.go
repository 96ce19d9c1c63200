package cgroups

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// Units and limits of the kernel's CPU controller, as the kubelet uses them.
const (
	minShares     = 2
	maxShares     = 262144
	sharesPerCPU  = 1024
	milliPerCPU   = 1000
	defaultPeriod = 100 * time.Millisecond
	// minQuota is the kernel's least quota: 1 ms, in microseconds.
	minQuota = 1000
)

// Options are the node's settings that limits depend on.
type Options struct {
	// Version is the host's cgroup version.
	Version Version
	// CPUQuota enforces CPU limits (KubeletConfiguration.cpuCFSQuota).
	CPUQuota bool
	// WithoutQuota reports whether a container's CPU limit is not enforced because the container
	// has its CPUs for itself; with nil, whether that of the whole pod is not. It may be nil.
	WithoutQuota func(pod *corev1.Pod, c *corev1.Container) bool
	// CPUPeriod is the period of CPU limits (cpuCFSQuotaPeriod); 0 means 100 ms.
	CPUPeriod time.Duration
	// PodPids is the most processes a pod may have (podPidsLimit); 0 or less sets no limit.
	PodPids int64
	// SingleProcessOOMKill (singleProcessOOMKill), if true, lets the kernel kill one process of a
	// container that is out of memory. If it is false or nil, the kernel kills all processes of the
	// container (cgroup v2 only).
	SingleProcessOOMKill *bool
	// SwapAccounting says whether the host counts swap per cgroup; see [SwapAccounting].
	SwapAccounting bool
	// Swap is the swap in bytes that containers share (memorySwap.swapBehavior LimitedSwap); 0
	// gives them none. StaticCritical says that static pods count as critical: critical pods get
	// no swap.
	Swap           int64
	StaticCritical bool
	// Throttle slows containers down before their memory limit (cgroup v2 only); nil does not.
	Throttle *Throttle
	// HugePageSizes are the host's sizes of huge pages, such as "2MB" and "1GB"; see
	// [HugePageSizes].
	HugePageSizes []string
}

// period returns the period of CPU limits in microseconds.
func (o Options) period() int64 {
	if o.CPUPeriod == 0 {
		return defaultPeriod.Microseconds()
	}
	return o.CPUPeriod.Microseconds()
}

// noQuota is the quota that does not limit.
const noQuota = -1

// unlimited reports whether the CPU limit of a container, or with nil of the whole pod, is not
// enforced.
func (o Options) unlimited(pod *corev1.Pod, c *corev1.Container) bool {
	return !o.CPUQuota || o.WithoutQuota != nil && o.WithoutQuota(pod, c)
}

// Limits are the limits of a cgroup above the containers. A zero value leaves the kernel's setting
// unchanged.
type Limits struct {
	// CPUShares is the relative weight, 2 to 262144. On cgroup v2 it is converted to a weight of 1
	// to 10000.
	CPUShares uint64
	// CPUQuota is the CPU time per CPUPeriod, both in microseconds; -1 means no limit.
	CPUQuota  int64
	CPUPeriod uint64
	// Memory is in bytes, or [lifted].
	Memory int64
	// Pids is the largest number of processes, or [lifted].
	Pids int64
	// HugePages is the largest number of bytes for each page size (in bytes). A size that is not
	// listed gets none, unless AnyHugePages is true.
	HugePages map[int64]int64
	// AnyHugePages sets no limit on huge pages.
	AnyHugePages bool
}

// PodLimits returns the limits of a pod's cgroup, with the pod's overhead included:
//
//   - CPU shares follow the requests;
//   - CPU quota and memory are set only if every container or the pod itself has a limit; a pod
//     that has its CPUs for itself has no quota ([Options].WithoutQuota);
//   - huge pages follow the requests, which equal the limits;
//   - processes follow the node's setting.
func PodLimits(pod *corev1.Pod, o Options) Limits {
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	cpuLimited, memoryLimited := true, true
	limits := resource.PodLimits(pod, resource.PodResourcesOptions{
		ContainerFn: func(list corev1.ResourceList, _ resource.ContainerType) {
			cpuLimited = cpuLimited && !list.Cpu().IsZero()
			memoryLimited = memoryLimited && !list.Memory().IsZero()
		},
	})
	if r := pod.Spec.Resources; r != nil && resource.IsPodLevelResourcesSet(pod) {
		cpuLimited = cpuLimited || !r.Limits.Cpu().IsZero()
		memoryLimited = memoryLimited || !r.Limits.Memory().IsZero()
	}

	out := Limits{HugePages: hugePages(requests), Pids: max(o.PodPids, 0)}
	class := QOSClass(pod)
	if class == corev1.PodQOSBestEffort {
		out.CPUShares = minShares
		return out
	}
	out.CPUShares = cpuShares(requests.Cpu().MilliValue())
	if guaranteed := class == corev1.PodQOSGuaranteed; guaranteed || cpuLimited {
		out.CPUPeriod = uint64(o.period())
		out.CPUQuota = cpuQuota(limits.Cpu().MilliValue(), o.period())
		if o.unlimited(pod, nil) {
			out.CPUQuota = noQuota
		}
	}
	if class == corev1.PodQOSGuaranteed || memoryLimited {
		out.Memory = limits.Memory().Value()
	}
	return out
}

// nodeLimits returns the limits of the cgroup of all pods. Without allocatable it has only the
// weight of all cores. The kernel's default weight would let any process outside compete with all
// pods together.
func nodeLimits(allocatable corev1.ResourceList, cores int) Limits {
	l := Limits{CPUShares: cpuShares(int64(cores) * milliPerCPU), AnyHugePages: true}
	if allocatable == nil {
		return l
	}
	if cpu, ok := allocatable[corev1.ResourceCPU]; ok {
		l.CPUShares = cpuShares(cpu.MilliValue())
	}
	l.Memory = allocatable.Memory().Value()
	if pids, ok := allocatable["pid"]; ok {
		l.Pids = pids.Value()
	}
	if pages := hugePages(allocatable); len(pages) > 0 {
		l.HugePages, l.AnyHugePages = pages, false
	}
	return l
}

// burstableShares returns the weight of all Burstable pods together.
func burstableShares(pods []*corev1.Pod) uint64 {
	var milli int64
	for _, pod := range pods {
		if QOSClass(pod) == corev1.PodQOSBurstable {
			requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
			milli += requests.Cpu().MilliValue()
		}
	}
	return cpuShares(milli)
}

// cpuShares converts thousandths of a core to a weight, within the kernel's limits.
func cpuShares(milli int64) uint64 {
	return uint64(min(max(milli*sharesPerCPU/milliPerCPU, minShares), maxShares))
}

// cpuWeight converts shares (2 to 262144) to the weight of cgroup v2 (1 to 10000), linearly, as the
// kubelet does.
func cpuWeight(shares uint64) uint64 {
	switch {
	case shares == 0:
		return 0
	case shares <= minShares:
		return 1
	case shares >= maxShares:
		return 10000
	}
	return 1 + (shares-minShares)*9999/(maxShares-minShares)
}

// cpuQuota converts thousandths of a core to microseconds per period; 0 means no limit.
func cpuQuota(milli, period int64) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*period/milliPerCPU, minQuota)
}
