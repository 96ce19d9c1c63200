package cgroups

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestWithoutQuota checks who has no CPU quota when a container has its CPUs for itself. The
// sandbox's overhead always has one.
func TestWithoutQuota(t *testing.T) {
	amounts := list{"cpu": "2", "memory": "1Gi"}
	pod := podOf(container(amounts, amounts), container(amounts, amounts))
	pod.Spec.Containers[0].Name = "pinned"
	pod.Spec.Overhead = list{"cpu": "1"}.list()
	type answer = func(*corev1.Pod, *corev1.Container) bool
	type quotas struct{ pod, pinned, other, sandbox, overhead int64 }
	for name, test := range map[string]struct {
		enforced bool
		answer   answer
		want     quotas
	}{
		"nobody is asked": {true, nil, quotas{500000, 200000, 200000, 400000, 100000}},
		"nobody has": {
			true, func(*corev1.Pod, *corev1.Container) bool { return false },
			quotas{500000, 200000, 200000, 400000, 100000},
		},
		"one of two": {
			true, func(_ *corev1.Pod, c *corev1.Container) bool { return c == nil || c.Name == "pinned" },
			quotas{-1, -1, 200000, -1, 100000},
		},
		"one, but not the pod": {
			true, func(_ *corev1.Pod, c *corev1.Container) bool { return c != nil && c.Name == "pinned" },
			quotas{500000, -1, 200000, 400000, 100000},
		},
		"no quotas at all": {false, func(*corev1.Pod, *corev1.Container) bool { return true }, quotas{pod: -1}},
	} {
		o := Options{Version: V1, CPUQuota: test.enforced, WithoutQuota: test.answer}
		sandbox, overhead := SandboxResources(pod, o)
		got := quotas{
			PodLimits(pod, o).CPUQuota, ContainerResources(pod, &pod.Spec.Containers[0], 1<<30, o).CpuQuota,
			ContainerResources(pod, &pod.Spec.Containers[1], 1<<30, o).CpuQuota, sandbox.CpuQuota, overhead.CpuQuota,
		}
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
