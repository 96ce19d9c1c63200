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

// What a container has by a claim is left out of its own requests and limits only.
func TestWithoutClaimed(t *testing.T) {
	list := func() v1.ResourceRequirements {
		both := v1.ResourceList{"cpu": resource.MustParse("1"), "example.com/gpu": resource.MustParse("2")}
		return v1.ResourceRequirements{Requests: both, Limits: both.DeepCopy()}
	}
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "first", Resources: list()}},
		Containers:     []v1.Container{{Name: "app", Resources: list()}, {Name: "bare"}},
	}}
	if got := WithoutClaimed(pod); got != pod {
		t.Errorf("without a claim: %v", got)
	}
	pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
		RequestMappings: []v1.ContainerExtendedResourceRequest{
			{ContainerName: "app", ResourceName: "example.com/gpu"},
			{ContainerName: "first", ResourceName: "example.com/fpga"},
		},
	}
	got := WithoutClaimed(pod)
	first, app := got.Spec.InitContainers[0].Resources, got.Spec.Containers[0].Resources
	if len(first.Requests) != 2 || len(first.Limits) != 2 || len(app.Requests) != 1 || len(app.Limits) != 1 {
		t.Errorf("%v, %v", first, app)
	}
	if len(pod.Spec.Containers[0].Resources.Limits) != 2 {
		t.Error("the pod itself has changed")
	}
	if !Claimed(pod, "app", "example.com/gpu") || Claimed(pod, "app", "cpu") || Claimed(pod, "bare", "example.com/gpu") {
		t.Error("it does not know what is claimed")
	}
}
