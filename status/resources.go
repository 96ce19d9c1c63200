package status

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// sharesPerCPU are the cgroup v1 CPU shares of one CPU.
	sharesPerCPU = 1024
	// minShares is the kernel's least number of CPU shares. At or below it, the status shows the
	// allocated request instead.
	minShares = 2
	// minMilliCPULimit is the least CPU limit that can be set (1 ms of each 100 ms). At or below
	// it, the status shows the allocated limit instead.
	minMilliCPULimit = 10
)

// actual returns the resources that the container really has: those that the runtime reports for a
// running container, or else those that the container was last given. It lists only resources that
// the spec names.
func (r *Resize) actual(c *v1.Container, observed *runtimeapi.ContainerStatus) *v1.ResourceRequirements {
	out := c.Resources.DeepCopy()
	r.given(observed.GetId(), out)
	if observed.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return out
	}
	linux := observed.GetResources().GetLinux()
	if linux == nil {
		return out
	}
	if out.Limits != nil {
		if limit := milliCPULimit(linux); limit > 0 &&
			(limit > minMilliCPULimit || out.Limits.Cpu().MilliValue() > minMilliCPULimit) {
			out.Limits[v1.ResourceCPU] = *resource.NewMilliQuantity(limit, resource.DecimalSI)
		}
		if limit := linux.GetMemoryLimitInBytes(); limit > 0 {
			out.Limits[v1.ResourceMemory] = *resource.NewQuantity(limit, resource.BinarySI)
		}
	}
	if out.Requests != nil {
		if request := milliCPURequest(linux); request > 0 &&
			(request > minShares || out.Requests.Cpu().MilliValue() > minShares) {
			out.Requests[v1.ResourceCPU] = *resource.NewMilliQuantity(request, resource.DecimalSI)
		}
	}
	return out
}

// milliCPULimit is the runtime's CPU quota in thousandths of a CPU; 0 means none.
func milliCPULimit(linux *runtimeapi.LinuxContainerResources) int64 {
	if linux.GetCpuPeriod() <= 0 || linux.GetCpuQuota() <= 0 {
		return 0
	}
	return linux.GetCpuQuota() * 1000 / linux.GetCpuPeriod()
}

// milliCPURequest is the runtime's CPU shares in thousandths of a CPU, rounded up; 0 means unknown.
func milliCPURequest(linux *runtimeapi.LinuxContainerResources) int64 {
	shares := linux.GetCpuShares()
	if shares < minShares {
		return 0
	}
	return (shares*1000 + sharesPerCPU - 1) / sharesPerCPU
}

// podResources are the pod's allocated requests, and its requests and limits over all containers.
func podResources(pod *v1.Pod) (allocated v1.ResourceList, total *v1.ResourceRequirements) {
	total = pod.Spec.Resources.DeepCopy()
	if total == nil {
		total = &v1.ResourceRequirements{}
	}
	total.Requests = podresource.PodRequests(pod, podresource.PodResourcesOptions{})
	total.Limits = podresource.PodLimits(pod, podresource.PodResourcesOptions{})
	return podresource.PodRequests(pod, podresource.PodResourcesOptions{}), total
}
