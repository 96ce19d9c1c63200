package pods

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestContainers(t *testing.T) {
	spec := &v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init"}},
		Containers:     []v1.Container{{Name: "main"}, {Name: "other"}},
		EphemeralContainers: []v1.EphemeralContainer{
			{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}},
		},
	}
	var names []string
	for c := range Containers(spec) {
		names = append(names, c.Name)
	}
	if want := []string{"init", "main", "other", "debug"}; !slices.Equal(names, want) {
		t.Errorf("containers %v, not %v", names, want)
	}
	for i := range names {
		seen := 0
		for range Containers(spec) {
			if seen++; seen > i {
				break
			}
		}
		if seen != i+1 {
			t.Errorf("%d containers after a break at %d", seen, i+1)
		}
	}
}

// What has ended when a container starts are the init containers before it that are no sidecars.
func TestEndedBefore(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "one"}, {Name: "side", RestartPolicy: &always}, {Name: "two"}},
		Containers:     []v1.Container{{Name: "main"}, {Name: "other"}},
	}}
	for name, want := range map[string][]string{
		"one": nil, "side": {"one"}, "two": {"one"}, "main": {"one", "two"}, "other": {"one", "two"}, "debug": nil,
	} {
		if got := EndedBefore(pod, name); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
