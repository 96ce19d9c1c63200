package volumes

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berthd/berth/internal/pods"
)

// hugePageSize returns the size in bytes of the pages of an emptyDir of medium HugePages or
// HugePages-<size>. The pod must request pages of that size. If the medium has no size, the pod
// must request pages of one size only. The errors are the kubelet's.
func hugePageSize(pod *v1.Pod, medium v1.StorageMedium) (int64, error) {
	wanted := int64(0)
	if suffix, ok := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)); ok {
		size, err := resource.ParseQuantity(suffix)
		if err != nil || size.Value() <= 0 {
			return 0, fmt.Errorf("medium %s: %q is not a size of huge pages", medium, suffix)
		}
		wanted = size.Value()
	}
	found := int64(0)
	for _, size := range requestedPages(pod) {
		switch {
		case wanted == 0 && found != 0 && size != found:
			return 0, fmt.Errorf("medium: %s can't be used if container requests multiple huge page sizes", medium)
		case wanted == 0 || size == wanted:
			found = size
		}
	}
	if found == 0 {
		return 0, fmt.Errorf("medium %s: hugePages storage requested, but there is no resource request for huge pages",
			medium)
	}
	return found, nil
}

// requestedPages returns the sizes in bytes of all huge pages that the pod or one of its containers
// requests.
func requestedPages(pod *v1.Pod) []int64 {
	var lists []v1.ResourceList
	if pod.Spec.Resources != nil {
		lists = append(lists, pod.Spec.Resources.Requests)
	}
	for container := range pods.Containers(&pod.Spec) {
		lists = append(lists, container.Resources.Requests)
	}
	var sizes []int64
	for _, list := range lists {
		for name := range list {
			suffix, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
			if !ok {
				continue
			}
			if size, err := resource.ParseQuantity(suffix); err == nil {
				sizes = append(sizes, size.Value())
			}
		}
	}
	return sizes
}
