package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestRestarts(t *testing.T) {
	pod := func(policy v1.RestartPolicy) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{
			RestartPolicy: policy,
			InitContainers: []v1.Container{
				{Name: "init"}, {Name: "side", RestartPolicy: ptr(v1.ContainerRestartPolicyAlways)},
			},
			Containers: []v1.Container{
				{Name: "app"}, {Name: "own", RestartPolicy: ptr(v1.ContainerRestartPolicyOnFailure)},
			},
		}}
	}
	for _, c := range []struct {
		policy v1.RestartPolicy
		name   string
		code   int32
		want   bool
	}{
		{v1.RestartPolicyAlways, "app", 0, true},
		{v1.RestartPolicyOnFailure, "app", 0, false},
		{v1.RestartPolicyOnFailure, "app", 1, true},
		{v1.RestartPolicyNever, "app", 1, false},
		{v1.RestartPolicyNever, "own", 1, true},
		{v1.RestartPolicyAlways, "own", 0, false},
		{v1.RestartPolicyAlways, "init", 0, false},
		{v1.RestartPolicyAlways, "init", 1, true},
		{v1.RestartPolicyNever, "init", 1, false},
		{v1.RestartPolicyNever, "side", 0, true},
		{v1.RestartPolicyAlways, "debug", 0, false},
		{"", "app", 1, false},
	} {
		if got := Restarts(pod(c.policy), c.name, c.code); got != c.want {
			t.Errorf("%s ended with %d under %q: %v", c.name, c.code, c.policy, got)
		}
	}
}
