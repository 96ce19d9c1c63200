package generate

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestResourceValue(t *testing.T) {
	list := func(pairs ...string) v1.ResourceList {
		out := v1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return out
	}
	full := v1.ResourceRequirements{
		Limits:   list("cpu", "1500m", "memory", "100Mi", "ephemeral-storage", "1Gi", "hugepages-2Mi", "4Mi"),
		Requests: list("cpu", "250m", "memory", "64Mi"),
	}
	allocatable := list("cpu", "4", "memory", "8Gi", "ephemeral-storage", "50Gi", "hugepages-2Mi", "1Gi")
	tests := map[string]struct {
		resource, divisor, container string
		own                          v1.ResourceRequirements
		pod                          *v1.ResourceRequirements
		want, err                    string
	}{
		"cpu rounds up":                {resource: "limits.cpu", own: full, want: "2"},
		"cpu in thousandths":           {resource: "limits.cpu", divisor: "1m", own: full, want: "1500"},
		"cpu request":                  {resource: "requests.cpu", own: full, want: "1"},
		"memory":                       {resource: "limits.memory", own: full, want: "104857600"},
		"memory in Mi":                 {resource: "limits.memory", divisor: "1Mi", own: full, want: "100"},
		"memory in Gi rounds up":       {resource: "limits.memory", divisor: "1Gi", own: full, want: "1"},
		"storage":                      {resource: "limits.ephemeral-storage", divisor: "1Mi", own: full, want: "1024"},
		"huge pages":                   {resource: "limits.hugepages-2Mi", divisor: "1Mi", own: full, want: "4"},
		"huge pages are not defaulted": {resource: "limits.hugepages-2Mi", want: "0"},
		"cpu limit is the node's":      {resource: "limits.cpu", want: "4"},
		"memory limit is the node's":   {resource: "limits.memory", divisor: "1Gi", want: "8"},
		"zero limit is the node's": {
			resource: "limits.cpu", own: v1.ResourceRequirements{Limits: list("cpu", "0")},
			want: "4",
		},
		"limit is the pod's": {
			resource: "limits.cpu", pod: &v1.ResourceRequirements{Limits: list("cpu", "3")},
			want: "3",
		},
		"own limit before the pod's": {
			resource: "limits.cpu", own: full, pod: &v1.ResourceRequirements{Limits: list("cpu", "3")},
			want: "2",
		},
		"storage is never the pod's": {
			resource: "limits.ephemeral-storage", divisor: "1Gi",
			pod: &v1.ResourceRequirements{Limits: list("ephemeral-storage", "3Gi")}, want: "50",
		},
		"no request": {resource: "requests.memory", want: "0"},
		"another container": {
			resource: "limits.cpu", container: "init", divisor: "1m", own: full, want: "4000",
		},
		"unknown container": {resource: "limits.cpu", container: "gone", err: "container gone not found"},
		"unknown resource":  {resource: "limits.pods", err: "unsupported container resource : limits.pods"},
		"unknown kind":      {resource: "usage.cpu", err: "unsupported container resource : usage.cpu"},
		"no dot":            {resource: "cpu", err: "unsupported container resource : cpu"},
		"negative divisor":  {resource: "limits.cpu", divisor: "-1", err: "not positive"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := testPod(func(p *v1.Pod) {
				p.Spec.InitContainers = []v1.Container{{Name: "init"}}
				p.Spec.Containers[0].Resources = tc.own
				p.Spec.Resources = tc.pod
			})
			ref := &v1.ResourceFieldSelector{ContainerName: tc.container, Resource: tc.resource}
			if tc.divisor != "" {
				ref.Divisor = resource.MustParse(tc.divisor)
			}
			got, err := ResourceValue(pod, &pod.Spec.Containers[0], ref, allocatable)
			checkText(t, got, err, tc.want, tc.err)
		})
	}
	t.Run("volumes name the container", func(t *testing.T) {
		_, err := ResourceValue(testPod(), nil, &v1.ResourceFieldSelector{Resource: "limits.cpu"}, allocatable)
		checkText(t, "", err, "", "no container named")
	})
}
