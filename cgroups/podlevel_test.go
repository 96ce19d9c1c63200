package cgroups

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// whole returns a pod with resources of its own (KEP-2837).
func whole(pod *corev1.Pod, requests, limits list) *corev1.Pod {
	pod.Spec.Resources = &corev1.ResourceRequirements{Requests: requests.list(), Limits: limits.list()}
	return pod
}

// TestPodLevelResources checks everything that a node computes from the pod's own resources. The
// pods are as the API's defaults leave them: a missing request of the pod is the sum of its
// containers' requests, or else the pod's limit.
func TestPodLevelResources(t *testing.T) {
	const node = 16 << 30
	usual := Options{Version: V1, CPUQuota: true}
	some, none := list{"cpu": "1", "memory": "2Gi"}, map[int64]int64{}
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		class corev1.PodQOSClass
		// limits are those of the pod's cgroup, first are the resources of the first container, oom
		// is its score.
		limits Limits
		first  *runtimeapi.LinuxContainerResources
	}{
		"Guaranteed by the pod alone": {
			whole(podOf(container(nil, nil)), some, some), corev1.PodQOSGuaranteed,
			Limits{CPUShares: 1024, CPUQuota: 100000, CPUPeriod: 100000, Memory: 2 << 30, HugePages: none},
			&runtimeapi.LinuxContainerResources{
				CpuShares:          1024,
				CpuQuota:           100000,
				CpuPeriod:          100000,
				MemoryLimitInBytes: 2 << 30,
				OomScoreAdj:        -997,
			},
		},
		"Guaranteed, whatever its containers say": {
			whole(podOf(container(list{"cpu": "100m"}, list{"cpu": "500m"})), some, some), corev1.PodQOSGuaranteed,
			Limits{CPUShares: 1024, CPUQuota: 100000, CPUPeriod: 100000, Memory: 2 << 30, HugePages: none},
			&runtimeapi.LinuxContainerResources{
				CpuShares:          102,
				CpuQuota:           50000,
				CpuPeriod:          100000,
				MemoryLimitInBytes: 2 << 30,
				OomScoreAdj:        -997,
			},
		},
		"Burstable by the pod's requests": {
			whole(podOf(container(nil, nil)), list{"cpu": "500m", "memory": "1600Mi"}, nil), corev1.PodQOSBurstable,
			Limits{CPUShares: 512, HugePages: none},
			&runtimeapi.LinuxContainerResources{
				CpuShares:   2,
				CpuPeriod:   100000,
				OomScoreAdj: 1000 - 1000*1600/(16<<10),
			},
		},
		"Burstable though its containers are Guaranteed": {
			whole(podOf(container(some, some)), list{"cpu": "2", "memory": "4Gi"}, list{"cpu": "4", "memory": "4Gi"}),
			corev1.PodQOSBurstable,
			Limits{CPUShares: 2048, CPUQuota: 400000, CPUPeriod: 100000, Memory: 4 << 30, HugePages: none},
			&runtimeapi.LinuxContainerResources{
				CpuShares:          1024,
				CpuQuota:           100000,
				CpuPeriod:          100000,
				MemoryLimitInBytes: 2 << 30,
				OomScoreAdj:        1000 - 1000*4/16,
			},
		},
		"a limit of memory alone": {
			whole(podOf(container(list{"cpu": "100m"}, nil), container(nil, nil)), list{"cpu": "100m", "memory": "1Gi"},
				list{"memory": "1Gi"}), corev1.PodQOSBurstable,
			Limits{CPUShares: 102, Memory: 1 << 30, HugePages: none},
			&runtimeapi.LinuxContainerResources{
				CpuShares:          102,
				CpuPeriod:          100000,
				MemoryLimitInBytes: 1 << 30,
				OomScoreAdj:        1000 - 1000*512/(16<<10),
			},
		},
		"what is left of its memory is its containers' in equal parts": {
			whole(podOf(container(list{"memory": "1Gi"}, nil), container(nil, nil)), list{"memory": "5Gi"}, nil),
			corev1.PodQOSBurstable,
			Limits{CPUShares: 2, HugePages: none},
			&runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 1000 - 1000*3/16},
		},
		"nothing": {
			whole(podOf(container(nil, nil)), nil, nil), corev1.PodQOSBestEffort,
			Limits{CPUShares: 2, HugePages: none},
			&runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 1000},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := QOSClass(c.pod); got != c.class {
				t.Errorf("class %s, want %s", got, c.class)
			}
			if diff := cmp.Diff(c.limits, PodLimits(c.pod, usual)); diff != "" {
				t.Errorf("the pod's cgroup (-want +got):\n%s", diff)
			}
			if got := ContainerResources(c.pod, &c.pod.Spec.Containers[0],
				node, usual); got.String() != c.first.String() {
				t.Errorf("the first container:\n got %s\nwant %s", got, c.first)
			}
		})
	}
}

// The pod's memory counts in the score of a sidecar as in the scores of the other containers.
func TestPodLevelMemoryOfASidecar(t *testing.T) {
	pod := whole(podOf(container(list{"memory": "4Gi"}, nil)), list{"memory": "6Gi"}, nil)
	sidecar := container(list{"memory": "1Gi"}, nil)
	sidecar.Name, sidecar.RestartPolicy = "s", ptr.To(corev1.ContainerRestartPolicyAlways)
	pod.Spec.InitContainers = []corev1.Container{sidecar}
	// 6 GiB less 5 GiB of requests leave 512 MiB for each of the two containers.
	if got := OOMScoreAdj(pod, &pod.Spec.InitContainers[0], 10<<30); got != 1000-450 {
		t.Errorf("the sidecar has %d", got)
	}
	if got := OOMScoreAdj(pod, &pod.Spec.Containers[0], 10<<30); got != 1000-450 {
		t.Errorf("the container has %d", got)
	}
}
