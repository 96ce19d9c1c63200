package eviction

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Reason is the reason of an evicted pod's status and event.
const Reason = "Evicted"

// The keys of the annotations of the event about an eviction. Tools read them.
const (
	keyStarved        = "starved_resource"
	keyContainers     = "offending_containers"
	keyContainerUsage = "offending_containers_usage"
	keyPod            = "offending_pod"
	keyPodUsage       = "offending_pod_usage"
)

// describe returns the kubelet's message about a pod that leaves because a resource is short, and
// the annotations of its event.
func describe(
	c candidate, short v1.ResourceName, due []Threshold, o observations,
) (message string, annotations map[string]string) {
	message = fmt.Sprintf("The node was low on resource: %s. ", short)
	if least, available, ok := o.shortage(short, due); ok {
		message += fmt.Sprintf("Threshold quantity: %s, available: %s. ", least.String(), available.String())
	}
	annotations = map[string]string{}
	if c.stats == nil {
		return message, annotations
	}
	const consumes = "%s %s was using %s, request is %s, has larger consumption of %s. "
	if r := c.pod.Spec.Resources; short == v1.ResourceMemory && helpers.IsPodLevelResourcesSet(c.pod) {
		if wants, ok := r.Requests[short]; ok && c.stats.Memory != nil {
			uses := workingSet(c.stats.Memory)
			message += fmt.Sprintf(consumes, "Pod", c.pod.Name, uses.String(), wants.String(), short)
			annotations[keyPod], annotations[keyPodUsage] = c.pod.Name, uses.String()
		}
	}
	var names, usages []string
	for i := range c.stats.Containers {
		s := &c.stats.Containers[i]
		container := containerOf(c.pod, s.Name)
		uses, known := containerUsage(s, short)
		if container == nil || !known {
			continue
		}
		if wants := container.Resources.Requests[short]; uses.Cmp(wants) > 0 {
			message += fmt.Sprintf(consumes, "Container", s.Name, uses.String(), wants.String(), short)
			names, usages = append(names, s.Name), append(usages, uses.String())
		}
	}
	annotations[keyContainers] = strings.Join(names, ",")
	annotations[keyContainerUsage] = strings.Join(usages, ",")
	annotations[keyStarved] = string(short)
	return message, annotations
}

// containerOf returns a pod's app or init container; nil for any other.
func containerOf(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		if i := slices.IndexFunc(list, func(c v1.Container) bool { return c.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// containerUsage returns how much a container uses of memory or of storage; false for another
// resource, or if it is not known.
func containerUsage(s *statsapi.ContainerStats, name v1.ResourceName) (resource.Quantity, bool) {
	switch name {
	case v1.ResourceMemory:
		return workingSet(s.Memory), s.Memory != nil && s.Memory.WorkingSetBytes != nil
	case v1.ResourceEphemeralStorage:
		out := usedBytes(s.Rootfs)
		out.Add(usedBytes(s.Logs))
		return out, s.Rootfs != nil && s.Rootfs.UsedBytes != nil && s.Logs != nil && s.Logs.UsedBytes != nil
	}
	return resource.Quantity{}, false
}
