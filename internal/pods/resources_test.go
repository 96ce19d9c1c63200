package pods

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestResourceNames(t *testing.T) {
	list := v1.ResourceList{}
	for _, name := range []v1.ResourceName{
		"pods", "z.io/b", "memory", "a.io/c", "cpu", "hugepages-2Mi", "ephemeral-storage",
	} {
		list[name] = resource.MustParse("1")
	}
	want := []v1.ResourceName{"cpu", "memory", "ephemeral-storage", "pods", "a.io/c", "hugepages-2Mi", "z.io/b"}
	if got := ResourceNames(list); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
