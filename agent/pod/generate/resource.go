package generate

import (
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berthd/berth/internal/pods"
)

// ResourceValue returns what a resourceFieldRef selects, in units of its divisor, rounded up.
// container is the container that asks. It may be nil if ref names one, as volumes always do. If
// the container has no limit of cpu, memory or ephemeral-storage, the value is the pod's own limit,
// or else what the node can allocate.
func ResourceValue(
	pod *v1.Pod, container *v1.Container, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList,
) (string, error) {
	if ref.ContainerName != "" {
		if container = findContainer(pod, ref.ContainerName); container == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
	}
	if container == nil {
		return "", fmt.Errorf("resource %s: no container named", ref.Resource)
	}
	kind, name, ok := strings.Cut(ref.Resource, ".")
	resourceName := v1.ResourceName(name)
	if !ok || !isDownwardResource(resourceName) {
		return "", fmt.Errorf("unsupported container resource : %s", ref.Resource)
	}
	switch kind {
	case "limits":
		return divide(limitOf(pod, container, resourceName, allocatable), resourceName, ref.Divisor)
	case "requests":
		return divide(container.Resources.Requests[resourceName], resourceName, ref.Divisor)
	}
	return "", fmt.Errorf("unsupported container resource : %s", ref.Resource)
}

func isDownwardResource(name v1.ResourceName) bool {
	return isDefaulted(name) || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// isDefaulted reports whether a missing limit means the pod's or the node's. Huge pages are never
// overcommitted, so they always have a limit.
func isDefaulted(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage
}

// limitOf returns the container's limit. If that is missing or zero, it returns the pod's or else
// the node's. Only cpu and memory have a limit of the pod.
func limitOf(
	pod *v1.Pod, container *v1.Container, name v1.ResourceName, allocatable v1.ResourceList,
) resource.Quantity {
	limit := container.Resources.Limits[name]
	if !limit.IsZero() || !isDefaulted(name) {
		return limit
	}
	if pod.Spec.Resources != nil && name != v1.ResourceEphemeralStorage {
		if podLimit := pod.Spec.Resources.Limits[name]; !podLimit.IsZero() {
			return podLimit
		}
	}
	return allocatable[name]
}

// divide returns quantity / divisor, rounded up. A zero divisor counts as 1. Cpu is divided in
// thousandths.
func divide(quantity resource.Quantity, name v1.ResourceName, divisor resource.Quantity) (string, error) {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	value, by := quantity.Value(), divisor.Value()
	if name == v1.ResourceCPU {
		value, by = quantity.MilliValue(), divisor.MilliValue()
	}
	if by <= 0 {
		return "", fmt.Errorf("divisor %s is not positive", divisor.String())
	}
	result := value / by
	if value%by > 0 {
		result++
	}
	return strconv.FormatInt(result, 10), nil
}

// findContainer returns the pod's container of that name, of any kind, or nil.
func findContainer(pod *v1.Pod, name string) *v1.Container {
	for c := range pods.Containers(&pod.Spec) {
		if c.Name == name {
			return c
		}
	}
	return nil
}
