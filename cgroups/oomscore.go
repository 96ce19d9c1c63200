package cgroups

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// OOM scores of containers, as the kubelet gives them.
const (
	// guaranteedOOMScore is for Guaranteed and node-critical pods: killed last.
	guaranteedOOMScore = -997
	// bestEffortOOMScore is killed first.
	bestEffortOOMScore = 1000
	// leastBurstableOOMScore and mostBurstableOOMScore keep Burstable containers between the two.
	leastBurstableOOMScore = 1000 + guaranteedOOMScore
	mostBurstableOOMScore  = bestEffortOOMScore - 1
)

// nodeCriticalClass is the priority class of pods the node cannot do without. The API server admits it only with the
// priority that goes with it.
const nodeCriticalClass = "system-node-critical"

// OOMScoreAdj returns a container's oom_score_adj. A Burstable container's falls with the share of the node's memory
// (memoryCapacity, bytes) that it requests: 1000 - 1000·request/capacity, within 3 and 999. What a pod requests for itself
// beyond its containers' requests counts for all of them in equal parts. A sidecar is never killed before the container
// of its pod that requests the least.
func OOMScoreAdj(pod *corev1.Pod, container *corev1.Container, memoryCapacity int64) int64 {
	if pod.Spec.PriorityClassName == nodeCriticalClass {
		return guaranteedOOMScore
	}
	switch QOSClass(pod) {
	case corev1.PodQOSGuaranteed:
		return guaranteedOOMScore
	case corev1.PodQOSBestEffort:
		return bestEffortOOMScore
	}
	if memoryCapacity <= 0 {
		return mostBurstableOOMScore
	}
	extra := podShareOfMemory(pod)
	request := container.Resources.Requests.Memory().Value()
	if isSidecar(pod, container) {
		request = max(request, leastRegularRequest(pod))
	}
	score := 1000 - 1000*(request+extra)/memoryCapacity
	return min(max(score, leastBurstableOOMScore), mostBurstableOOMScore)
}

// podShareOfMemory returns each container's part of the memory that the pod requests beyond its containers' requests.
func podShareOfMemory(pod *corev1.Pod) int64 {
	containers := int64(len(pod.Spec.Containers) + len(pod.Spec.InitContainers))
	if !resource.IsPodLevelRequestsSet(pod) || containers == 0 || pod.Spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	requested := resource.AggregateContainerRequests(pod, resource.PodResourcesOptions{})
	return (pod.Spec.Resources.Requests.Memory().Value() - requested.Memory().Value()) / containers
}

func isSidecar(pod *corev1.Pod, container *corev1.Container) bool {
	if container.RestartPolicy == nil || *container.RestartPolicy != corev1.ContainerRestartPolicyAlways {
		return false
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container.Name {
			return true
		}
	}
	return false
}

func leastRegularRequest(pod *corev1.Pod) int64 {
	least := int64(0)
	for i := range pod.Spec.Containers {
		request := pod.Spec.Containers[i].Resources.Requests.Memory().Value()
		if i == 0 || request < least {
			least = request
		}
	}
	return least
}
