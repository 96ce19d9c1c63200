package cgroups

import (
	"fmt"
	"strings"

	"github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// HugePageSizes returns the sizes of huge pages that this host has, such as "2MB" and "1GB".
func HugePageSizes() []string { return cgroups.HugePageSizes() }

// hugePages returns the bytes for each page size (in bytes).
func hugePages(list corev1.ResourceList) map[int64]int64 {
	pages := map[int64]int64{}
	for name, amount := range list {
		if size, ok := hugePageSize(name); ok {
			pages[size] += amount.Value()
		}
	}
	return pages
}

// hugePageSize returns the page size in bytes of the resource hugepages-SIZE.
func hugePageSize(name corev1.ResourceName) (int64, bool) {
	text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
	if !ok {
		return 0, false
	}
	size, err := resource.ParseQuantity(text)
	if err != nil || size.Value() <= 0 {
		return 0, false
	}
	return size.Value(), true
}

// hugePageName writes a page size as the files of the hugetlb controller do, with the largest unit
// that divides it.
func hugePageName(size int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	i := 0
	for size >= 1024 && size%1024 == 0 && i+1 < len(units) {
		size /= 1024
		i++
	}
	return fmt.Sprintf("%d%s", size, units[i])
}
