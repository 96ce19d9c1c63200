package cgroups

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/berthd/berth/internal/pods"
)

// OOM scores of containers; the values are the kubelet's.
const (
	// guaranteedOOMScore is for Guaranteed pods and node-critical pods, which are killed last.
	guaranteedOOMScore = -997
	// bestEffortOOMScore is for BestEffort pods, which are killed first.
	bestEffortOOMScore = 1000
	// Burstable containers get a score between leastBurstableOOMScore and mostBurstableOOMScore.
	leastBurstableOOMScore = 1000 + guaranteedOOMScore
	mostBurstableOOMScore  = bestEffortOOMScore - 1
)

// nodeCriticalClass is the priority class of pods that the node cannot do without. The API server
// admits the class only together with its priority.
const nodeCriticalClass = "system-node-critical"

// OOMScoreAdj returns a container's oom_score_adj. memoryCapacity is the node's memory in bytes.
// The score of a Burstable container falls with the share of that memory that it requests: 1000 -
// 1000·request/capacity, at least 3 and at most 999.
//
// The memory that a pod requests beyond its containers' requests counts for all containers in equal
// parts. The score of a sidecar is never higher than that of the pod's container with the smallest
// request.
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

// podShareOfMemory returns each container's part of the memory that the pod requests beyond the
// requests of its containers.
func podShareOfMemory(pod *corev1.Pod) int64 {
	containers := int64(len(pod.Spec.Containers) + len(pod.Spec.InitContainers))
	if !resource.IsPodLevelRequestsSet(pod) || containers == 0 || pod.Spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	requested := resource.AggregateContainerRequests(pod, resource.PodResourcesOptions{})
	return (pod.Spec.Resources.Requests.Memory().Value() - requested.Memory().Value()) / containers
}

func isSidecar(pod *corev1.Pod, container *corev1.Container) bool {
	if !pods.Sidecar(container) {
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
