package cgroups

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// list is shorthand for a list of resources.
type list map[corev1.ResourceName]string

func (l list) list() corev1.ResourceList {
	if l == nil {
		return nil
	}
	out := corev1.ResourceList{}
	for name, amount := range l {
		out[name] = resource.MustParse(amount)
	}
	return out
}

func container(requests, limits list) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests.list(), Limits: limits.list()}}
}

func podOf(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: containers}}
}

func TestPodLimits(t *testing.T) {
	usual := Options{Version: V1, CPUQuota: true}
	with := func(pod *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
		change(pod)
		return pod
	}
	none := map[int64]int64{}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		opts Options
		want Limits
	}{
		"BestEffort": {podOf(container(nil, nil)), usual, Limits{CPUShares: 2, HugePages: none}},
		"Burstable without limits": {
			podOf(container(list{"cpu": "100m", "memory": "1Gi"}, nil)), usual,
			Limits{CPUShares: 102, HugePages: none},
		},
		"Burstable, one of two with limits": {
			podOf(container(list{"cpu": "100m"}, list{"cpu": "200m", "memory": "1Gi"}),
				container(list{"cpu": "100m"}, nil)), usual,
			Limits{CPUShares: 204, HugePages: none},
		},
		"Burstable, all with limits": {
			podOf(container(list{"cpu": "100m"}, list{"cpu": "200m", "memory": "1Gi"}),
				container(list{"cpu": "100m"}, list{"cpu": "300m", "memory": "1Gi"})), usual,
			Limits{CPUShares: 204, CPUQuota: 50000, CPUPeriod: 100000, Memory: 2 << 30, HugePages: none},
		},
		"Burstable, an init container without limits": {
			with(podOf(container(list{"cpu": "100m"}, list{"cpu": "200m", "memory": "1Gi"})), func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{container(list{"cpu": "1"}, nil)}
			}), usual,
			Limits{CPUShares: 1024, HugePages: none},
		},
		"Guaranteed": {
			podOf(container(list{"cpu": "2", "memory": "1Gi"}, list{"cpu": "2", "memory": "1Gi"})),
			Options{CPUQuota: true, PodPids: 100, CPUPeriod: 10 * time.Millisecond},
			Limits{CPUShares: 2048, CPUQuota: 20000, CPUPeriod: 10000, Memory: 1 << 30, Pids: 100, HugePages: none},
		},
		"quota off": {
			podOf(container(list{"cpu": "2", "memory": "1Gi"}, list{"cpu": "2", "memory": "1Gi"})),
			Options{PodPids: -1},
			Limits{CPUShares: 2048, CPUQuota: -1, CPUPeriod: 100000, Memory: 1 << 30, HugePages: none},
		},
		"the least shares and quota": {
			podOf(container(list{"cpu": "1m"}, list{"cpu": "1m"})), usual,
			Limits{CPUShares: 2, CPUQuota: 1000, CPUPeriod: 100000, HugePages: none},
		},
		"the most shares": {
			podOf(container(list{"cpu": "1000"}, nil)), usual, Limits{CPUShares: 262144, HugePages: none},
		},
		"overhead": {
			with(podOf(container(list{"cpu": "1", "memory": "1Gi"}, list{"cpu": "1", "memory": "1Gi"})),
				func(p *corev1.Pod) {
					p.Spec.Overhead = list{"cpu": "500m", "memory": "1Gi"}.list()
				}), usual,
			Limits{CPUShares: 1536, CPUQuota: 150000, CPUPeriod: 100000, Memory: 2 << 30, HugePages: none},
		},
		"limits of the pod itself": {
			with(podOf(container(nil, nil), container(list{"cpu": "100m"}, nil)), func(p *corev1.Pod) {
				p.Spec.Resources = &corev1.ResourceRequirements{
					Requests: list{"cpu": "1"}.list(), Limits: list{"cpu": "2", "memory": "1Gi"}.list(),
				}
			}), usual,
			Limits{CPUShares: 1024, CPUQuota: 200000, CPUPeriod: 100000, Memory: 1 << 30, HugePages: none},
		},
		"huge pages": {
			podOf(container(list{"cpu": "1", "hugepages-2Mi": "4Mi"}, list{"hugepages-2Mi": "4Mi"})), usual,
			Limits{CPUShares: 1024, HugePages: map[int64]int64{2 << 20: 4 << 20}},
		},
	} {
		if diff := cmp.Diff(test.want, PodLimits(test.pod, test.opts)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestContainerResources(t *testing.T) {
	const node = 16 << 30
	podLevel := podOf(container(nil, nil),
		container(list{"memory": "1Gi"}, list{"cpu": "100m", "hugepages-2Mi": "2Mi"}))
	podLevel.Spec.Resources = &corev1.ResourceRequirements{
		Requests: list{"cpu": "1", "memory": "4Gi"}.list(),
		Limits:   list{"cpu": "2", "memory": "8Gi", "hugepages-2Mi": "8Mi"}.list(),
	}
	for name, test := range map[string]struct {
		pod   *corev1.Pod
		index int
		opts  Options
		want  *runtimeapi.LinuxContainerResources
	}{
		"BestEffort on v1": {
			podOf(container(nil, nil)), 0,
			Options{Version: V1, CPUQuota: true, SwapAccounting: true},
			&runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 1000},
		},
		"without quota": {
			podOf(container(nil, list{"cpu": "1"})), 0,
			Options{Version: Hybrid},
			&runtimeapi.LinuxContainerResources{CpuShares: 1024, OomScoreAdj: 999},
		},
		"the limit stands in for the request": {
			podOf(container(nil, list{"cpu": "500m", "memory": "1Gi"})), 0,
			Options{Version: V1, CPUQuota: true, SwapAccounting: true},
			&runtimeapi.LinuxContainerResources{
				CpuShares:              512,
				CpuQuota:               50000,
				CpuPeriod:              100000,
				MemoryLimitInBytes:     1 << 30,
				MemorySwapLimitInBytes: 1 << 30,
				OomScoreAdj:            999,
			},
		},
		"Guaranteed on v2": {
			podOf(container(list{"cpu": "1", "memory": "1Gi"}, list{"cpu": "1", "memory": "1Gi"})), 0,
			Options{Version: V2, CPUQuota: true, SwapAccounting: true},
			&runtimeapi.LinuxContainerResources{
				CpuShares: 1024, CpuQuota: 100000, CpuPeriod: 100000, MemoryLimitInBytes: 1 << 30, OomScoreAdj: -997,
				Unified: map[string]string{"memory.oom.group": "1", "memory.swap.max": "0"},
			},
		},
		"one process is killed": {
			podOf(container(list{"cpu": "1"}, nil)), 0,
			Options{Version: V2, SingleProcessOOMKill: ptr.To(true)},
			&runtimeapi.LinuxContainerResources{CpuShares: 1024, OomScoreAdj: 999},
		},
		"all processes are killed": {
			podOf(container(list{"cpu": "1"}, nil)), 0,
			Options{Version: V2, SingleProcessOOMKill: ptr.To(false)},
			&runtimeapi.LinuxContainerResources{
				CpuShares:   1024,
				OomScoreAdj: 999,
				Unified:     map[string]string{"memory.oom.group": "1"},
			},
		},
		"the pod's limits": {
			podLevel, 0,
			Options{Version: V1, CPUQuota: true, HugePageSizes: []string{"2MB", "1GB"}},
			&runtimeapi.LinuxContainerResources{
				CpuShares:          2048,
				CpuQuota:           200000,
				CpuPeriod:          100000,
				MemoryLimitInBytes: 8 << 30,
				OomScoreAdj:        1000 - 1000*15/160,
				HugepageLimits:     []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 8 << 20}, {PageSize: "1GB"}},
			},
		},
		"the container's before the pod's": {
			podLevel, 1,
			Options{Version: V1, CPUQuota: true, HugePageSizes: []string{"2MB"}},
			&runtimeapi.LinuxContainerResources{
				CpuShares:          102,
				CpuQuota:           10000,
				CpuPeriod:          100000,
				MemoryLimitInBytes: 8 << 30,
				OomScoreAdj:        1000 - 1000*25/160,
				HugepageLimits:     []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 2 << 20}},
			},
		},
	} {
		got := ContainerResources(test.pod, &test.pod.Spec.Containers[test.index], node, test.opts)
		if got.String() != test.want.String() {
			t.Errorf("%s:\n got %s\nwant %s", name, got, test.want)
		}
	}
}

func TestOOMScoreAdj(t *testing.T) {
	const node = 10 << 30
	always := corev1.ContainerRestartPolicyAlways
	sidecar := container(list{"memory": "1Gi"}, nil)
	sidecar.Name, sidecar.RestartPolicy = "s", &always
	withSidecar := podOf(container(list{"memory": "4Gi"}, nil), container(list{"memory": "3Gi"}, nil))
	withSidecar.Spec.InitContainers = []corev1.Container{sidecar}
	critical := podOf(container(nil, nil))
	critical.Spec.PriorityClassName = "system-node-critical"
	for name, test := range map[string]struct {
		pod       *corev1.Pod
		container *corev1.Container
		node      int64
		want      int64
	}{
		"BestEffort": {podOf(container(nil, nil)), nil, node, 1000},
		"Guaranteed": {
			podOf(container(list{"cpu": "1", "memory": "1"}, list{"cpu": "1", "memory": "1"})), nil, node, -997,
		},
		"node critical":           {critical, nil, node, -997},
		"a tenth":                 {podOf(container(list{"memory": "1Gi"}, nil)), nil, node, 900},
		"nothing of memory":       {podOf(container(list{"cpu": "1"}, nil)), nil, node, 999},
		"all":                     {podOf(container(list{"memory": "10Gi"}, nil)), nil, node, 3},
		"more than all":           {podOf(container(list{"memory": "50Gi"}, nil)), nil, node, 3},
		"a sidecar like the rest": {withSidecar, &sidecar, node, 700},
		"an unknown node":         {podOf(container(list{"memory": "1Gi"}, nil)), nil, 0, 999},
	} {
		c := test.container
		if c == nil {
			c = &test.pod.Spec.Containers[0]
		}
		if got := OOMScoreAdj(test.pod, c, test.node); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// TestInitContainerResources checks that an init container is limited as an app container is.
func TestInitContainerResources(t *testing.T) {
	amounts := list{"cpu": "500m", "memory": "1Gi", "hugepages-2Mi": "4Mi"}
	pod := podOf(container(nil, nil))
	pod.Spec.InitContainers = []corev1.Container{container(amounts, amounts)}
	got := ContainerResources(pod, &pod.Spec.InitContainers[0], 16<<30,
		Options{Version: V1, CPUQuota: true, HugePageSizes: []string{"2MB"}})
	if got.CpuShares != 512 || got.CpuQuota != 50000 || got.MemoryLimitInBytes != 1<<30 ||
		len(got.HugepageLimits) != 1 || got.HugepageLimits[0].Limit != 4<<20 {
		t.Errorf("got %s", got)
	}
}

func TestSandboxResources(t *testing.T) {
	pod := podOf(container(list{"cpu": "1"}, list{"cpu": "1", "memory": "1Gi"}),
		container(list{"cpu": "500m"}, list{"cpu": "1", "memory": "1Gi"}))
	pod.Spec.Overhead = list{"cpu": "250m", "memory": "120Mi"}.list()
	resources, overhead := SandboxResources(pod, Options{Version: V1, CPUQuota: true})
	for _, pair := range [][2]*runtimeapi.LinuxContainerResources{
		{resources, {CpuShares: 1536, CpuQuota: 200000, CpuPeriod: 100000, MemoryLimitInBytes: 2 << 30}},
		{overhead, {CpuShares: 256, CpuQuota: 25000, CpuPeriod: 100000, MemoryLimitInBytes: 120 << 20}},
	} {
		if pair[0].String() != pair[1].String() {
			t.Errorf("got %s, want %s", pair[0], pair[1])
		}
	}
	if _, none := SandboxResources(podOf(container(nil, nil)),
		Options{Version: V1, CPUQuota: true}); none.String() != "" {
		t.Errorf("a pod without overhead has overhead %s", none)
	}
}

func TestConversions(t *testing.T) {
	for shares, weight := range map[uint64]uint64{
		0:      0,
		2:      1,
		102:    4,
		1024:   39,
		2048:   79,
		262144: 10000,
		300000: 10000,
	} {
		if got := cpuWeight(shares); got != weight {
			t.Errorf("%d shares weigh %d, want %d", shares, got, weight)
		}
	}
	for size, name := range map[int64]string{
		2 << 20:  "2MB",
		1 << 30:  "1GB",
		64 << 10: "64KB",
		16 << 30: "16GB",
		1:        "1B",
	} {
		if got := hugePageName(size); got != name {
			t.Errorf("page size %d is %s, want %s", size, got, name)
		}
	}
	pods := []*corev1.Pod{
		podOf(container(list{"cpu": "1"}, nil)), podOf(container(list{"cpu": "500m"}, nil)), podOf(container(nil, nil)),
		podOf(container(list{"cpu": "4", "memory": "1"}, list{"cpu": "4", "memory": "1"})),
	}
	if got := burstableShares(pods); got != 1536 {
		t.Errorf("Burstable pods have %d shares, want 1536", got)
	}
	if got := burstableShares(nil); got != 2 {
		t.Errorf("no Burstable pods have %d shares, want 2", got)
	}
}

// TestResourcesOfV2 checks what is written on a host with cgroup v2, although this host may have
// v1: weight instead of shares, and huge pages only if the controller exists.
func TestResourcesOfV2(t *testing.T) {
	v2 := hierarchies{version: V2, controllers: map[string]string{"hugetlb": unifiedMount}}
	l := Limits{
		CPUShares: 1024,
		CPUQuota:  50000,
		CPUPeriod: 100000,
		Memory:    1 << 30,
		Pids:      5,
		HugePages: map[int64]int64{2 << 20: 4 << 20},
	}
	r := v2.resources(l, []string{"2MB", "1GB"})
	if r.CpuWeight != 39 || r.CpuShares != 0 || r.CpuQuota != 50000 || r.Memory != 1<<30 || *r.PidsLimit != 5 {
		t.Errorf("got %+v", r)
	}
	if len(r.HugetlbLimit) != 2 || r.HugetlbLimit[0].Limit != 4<<20 || r.HugetlbLimit[1].Limit != 0 {
		t.Errorf("huge pages %+v, %+v", r.HugetlbLimit[0], r.HugetlbLimit[1])
	}
	if r := (hierarchies{version: V1}).resources(l, []string{"2MB"}); r.CpuShares != 1024 || r.CpuWeight != 0 ||
		r.HugetlbLimit != nil {
		t.Errorf("got %+v", r)
	}
	if r := v2.resources(Limits{AnyHugePages: true}, []string{"2MB"}); r.HugetlbLimit[0].Limit != 1<<62 ||
		r.PidsLimit != nil {
		t.Errorf("got %+v", r)
	}
}

func TestSliceForTheLibrary(t *testing.T) {
	l := Layout{Driver: Systemd}
	for path, want := range map[string][2]string{
		"/kubepods.slice":                          {"-.slice", "kubepods.slice"},
		"/kubepods.slice/kubepods-burstable.slice": {"kubepods.slice", "kubepods-burstable.slice"},
	} {
		cg := l.cgroup(path, nil)
		if !cg.Systemd || cg.Parent != want[0] || cg.Name != want[1] {
			t.Errorf("%s is told as %s in %s", path, cg.Name, cg.Parent)
		}
	}
}

func TestNodeLimits(t *testing.T) {
	if got := nodeLimits(nil, 4); got.CPUShares != 4096 || got.Memory != 0 || !got.AnyHugePages {
		t.Errorf("without allocatable: %+v", got)
	}
	got := nodeLimits(list{"cpu": "1500m", "memory": "1Gi", "pid": "1000", "hugepages-2Mi": "2Mi"}.list(), 4)
	want := Limits{CPUShares: 1536, Memory: 1 << 30, Pids: 1000, HugePages: map[int64]int64{2 << 20: 2 << 20}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
