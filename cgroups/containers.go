package cgroups

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/pods"
)

// ContainerResources returns the resources of a container for the runtime. memoryCapacity is the
// node's memory in bytes; the OOM score of a Burstable container is computed from memoryCapacity.
//
// CPU shares follow the request, or the limit if there is no request. A container without a limit
// of its own gets the pod's limit, if spec.resources has one. A container that has its CPUs for
// itself has no CPU quota ([Options].WithoutQuota). Containers get no swap, unless the
// options give them a share ([Options].Swap). With [Options].Throttle, the kernel slows a container
// down before its memory limit.
func ContainerResources(
	pod *corev1.Pod, container *corev1.Container, memoryCapacity int64, o Options,
) *runtimeapi.LinuxContainerResources {
	r := linuxResources(cpuRequest(container.Resources.Requests), containerLimit(pod, container, corev1.ResourceCPU),
		containerLimit(pod, container, corev1.ResourceMemory), o)
	if o.CPUQuota && o.unlimited(pod, container) {
		r.CpuQuota = noQuota
	}
	r.OomScoreAdj = OOMScoreAdj(pod, container, memoryCapacity)
	r.HugepageLimits = hugePageLimits(pod, container, o.HugePageSizes)
	limitSwap(r, swapShare(pod, container, memoryCapacity, o), o)
	throttle(r, container, o)
	return r
}

// SandboxResources returns the resources of a whole pod for the runtime: those of its containers,
// and the overhead of the sandbox itself. Neither of them sets a limit. Runtimes that run a pod in
// a virtual machine use them for its size.
func SandboxResources(pod *corev1.Pod, o Options) (resources, overhead *runtimeapi.LinuxContainerResources) {
	ro := resource.PodResourcesOptions{ExcludeOverhead: true}
	requests, limits := resource.PodRequests(pod, ro), resource.PodLimits(pod, ro)
	resources = linuxResources(cpuRequest(requests), *limits.Cpu(), *limits.Memory(), o)
	if o.CPUQuota && o.unlimited(pod, nil) {
		resources.CpuQuota = noQuota
	}
	overhead = &runtimeapi.LinuxContainerResources{}
	if list := pod.Spec.Overhead; list != nil {
		overhead = linuxResources(list.Cpu(), *list.Cpu(), *list.Memory(), o)
	}
	return resources, overhead
}

// linuxResources converts amounts to the kernel's units. request is nil if there is no request.
func linuxResources(
	request *apiresource.Quantity, cpuLimit, memoryLimit apiresource.Quantity, o Options,
) *runtimeapi.LinuxContainerResources {
	if request == nil {
		request = &cpuLimit
	}
	r := &runtimeapi.LinuxContainerResources{
		CpuShares:          int64(cpuShares(request.MilliValue())),
		MemoryLimitInBytes: memoryLimit.Value(),
	}
	if o.CPUQuota {
		r.CpuPeriod = o.period()
		r.CpuQuota = cpuQuota(cpuLimit.MilliValue(), r.CpuPeriod)
	}
	if o.Version == V2 && (o.SingleProcessOOMKill == nil || !*o.SingleProcessOOMKill) {
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

// swapShare returns how much swap a container may use, in bytes: the share of the node's swap that
// its request has of the node's memory (KEP-2400, LimitedSwap). Only containers of Burstable pods
// that are not critical, and whose request is below their limit, may swap, and only on cgroup v2.
func swapShare(pod *corev1.Pod, container *corev1.Container, memoryCapacity int64, o Options) int64 {
	request, limit := container.Resources.Requests.Memory(), container.Resources.Limits.Memory()
	critical := pods.Priority(pod) >= pods.Critical || o.StaticCritical && pods.IsCritical(pod)
	if o.Swap <= 0 || o.Version != V2 || critical || QOSClass(pod) != corev1.PodQOSBurstable ||
		request.Cmp(*limit) == 0 || memoryCapacity <= 0 || request.Value() > memoryCapacity {
		return 0
	}
	return int64(float64(request.Value()) / float64(memoryCapacity) * float64(o.Swap))
}

// limitSwap limits swap to an amount if the host counts swap. On cgroup v1 no swap is allowed: the
// limit is for memory and swap together, and has an effect only beside a memory limit.
func limitSwap(r *runtimeapi.LinuxContainerResources, amount int64, o Options) {
	switch {
	case !o.SwapAccounting:
	case o.Version == V2:
		if r.Unified == nil {
			r.Unified = map[string]string{}
		}
		r.Unified["memory.swap.max"] = strconv.FormatInt(amount, 10)
	default:
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes
	}
}

func cpuRequest(list corev1.ResourceList) *apiresource.Quantity {
	if q, ok := list[corev1.ResourceCPU]; ok {
		return &q
	}
	return nil
}

// containerLimit returns the container's limit, or the pod's limit if the container has none.
func containerLimit(pod *corev1.Pod, container *corev1.Container, name corev1.ResourceName) apiresource.Quantity {
	limit := container.Resources.Limits[name]
	if limit.IsZero() && resource.IsPodLevelResourcesSet(pod) {
		return pod.Spec.Resources.Limits[name]
	}
	return limit
}

// hugePageLimits returns a limit for each page size of the host: the container's limit, or the
// pod's, or 0.
func hugePageLimits(pod *corev1.Pod, container *corev1.Container, sizes []string) []*runtimeapi.HugepageLimit {
	amounts := map[string]uint64{}
	collect := func(list corev1.ResourceList) {
		for name, amount := range list {
			if size, ok := hugePageSize(name); ok {
				amounts[hugePageName(size)] = uint64(amount.Value())
			}
		}
	}
	if resource.IsPodLevelResourcesSet(pod) {
		collect(pod.Spec.Resources.Limits)
	}
	collect(container.Resources.Limits)
	var out []*runtimeapi.HugepageLimit
	for _, size := range sizes {
		out = append(out, &runtimeapi.HugepageLimit{PageSize: size, Limit: amounts[size]})
	}
	return out
}
