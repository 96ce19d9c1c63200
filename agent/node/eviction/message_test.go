package eviction

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/agent/node/stats"
)

func TestDescribe(t *testing.T) {
	due := []Threshold{
		{Signal: MemoryAvailable, Least: Value{share: 0.1}}, {Signal: NodeFsAvailable, Least: amount("1Gi")},
	}
	o := left(map[Signal]int64{NodeFsAvailable: 7})
	o.add(MemoryAvailable, 50<<20, 1<<30, resource.BinarySI, o[NodeFsAvailable].at)
	grouped := podOf("grouped", 0, "", "")
	grouped.Spec.Resources = &v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("5Mi")},
	}
	for name, c := range map[string]struct {
		pod         candidate
		short       v1.ResourceName
		message     string
		annotations map[string]string
	}{
		"memory": {
			using(podOf("web", 0, "10Mi", ""), uses{memory: 64 << 20}), v1.ResourceMemory,
			"The node was low on resource: memory. Threshold quantity: 107374184, available: 50Mi. " +
				"Container app was using 64Mi, request is 10Mi, has larger consumption of memory. ",
			map[string]string{
				"offending_containers": "app", "offending_containers_usage": "64Mi", "starved_resource": "memory",
			},
		},
		"storage, without a request": {
			using(podOf("web", 0, "", ""), uses{layer: 2048, logs: 1024, volume: 1 << 30}), v1.ResourceEphemeralStorage,
			"The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 7. " +
				"Container app was using 3Ki, request is 0, has larger consumption of ephemeral-storage. ",
			map[string]string{
				"offending_containers": "app", "offending_containers_usage": "3Ki", "starved_resource": "ephemeral-storage",
			},
		},
		"within its request": {
			using(podOf("web", 0, "64Mi", ""), uses{memory: 64 << 20}), v1.ResourceMemory,
			"The node was low on resource: memory. Threshold quantity: 107374184, available: 50Mi. ",
			map[string]string{
				"offending_containers": "", "offending_containers_usage": "", "starved_resource": "memory",
			},
		},
		"process ids": {
			using(podOf("web", 0, "", ""), uses{processes: 900}), resourcePIDs, "The node was low on resource: pids. ",
			map[string]string{"offending_containers": "", "offending_containers_usage": "", "starved_resource": "pids"},
		},
		"a pod that requests as a whole": {
			using(grouped, uses{memory: 8 << 20}), v1.ResourceMemory,
			"The node was low on resource: memory. Threshold quantity: 107374184, available: 50Mi. " +
				"Pod grouped was using 8Mi, request is 5Mi, has larger consumption of memory. " +
				"Container app was using 8Mi, request is 0, has larger consumption of memory. ",
			map[string]string{
				"offending_pod": "grouped", "offending_pod_usage": "8Mi", "offending_containers": "app",
				"offending_containers_usage": "8Mi", "starved_resource": "memory",
			},
		},
		"of unknown usage": {
			candidate{pod: podOf("web", 0, "", "")},
			resourceInodes, "The node was low on resource: inodes. ",
			map[string]string{},
		},
	} {
		message, annotations := describe(c.pod, c.short, due, o)
		if message != c.message {
			t.Errorf("%s: %q\nwant %q", name, message, c.message)
		}
		if !maps.Equal(annotations, c.annotations) {
			t.Errorf("%s: annotations %v\nwant %v", name, annotations, c.annotations)
		}
	}
}

func TestOverLimit(t *testing.T) {
	sized := podOf("sized", 0, "", "")
	most := resource.MustParse("1Mi")
	sized.Spec.Volumes[0].EmptyDir.SizeLimit = &most
	bounded := podOf("bounded", 0, "", "")
	bounded.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("2Mi")}
	both := bounded.DeepCopy()
	both.Spec.Volumes[0].EmptyDir.SizeLimit = &most
	for name, c := range map[string]struct {
		pod     candidate
		disks   stats.Disks
		limit   Signal
		message string
	}{
		"a volume": {
			using(sized, uses{volume: 1<<20 + 1}),
			stats.Disks{},
			emptyDirLimit,
			`Usage of EmptyDir volume "data" exceeds the limit "1Mi". `,
		},
		"a full volume": {using(sized, uses{volume: 1 << 20}), stats.Disks{}, "", ""},
		"a pod": {
			total(using(bounded, uses{}), 2<<20+1),
			stats.Disks{},
			podLimit,
			"Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ",
		},
		"a container, by its layer": {
			using(bounded, uses{layer: 2<<20 + 1}),
			stats.Disks{},
			containerLimit,
			`Container app exceeded its local ephemeral storage limit "2Mi". `,
		},
		"a layer on the disk of images": {using(bounded, uses{layer: 2<<20 + 1}), stats.Disks{ImageFs: true}, "", ""},
		"logs": {
			using(bounded, uses{logs: 2<<20 + 1}),
			stats.Disks{ImageFs: true},
			containerLimit,
			`Container app exceeded its local ephemeral storage limit "2Mi". `,
		},
		"the volume first": {
			using(both, uses{logs: 2<<20 + 1, volume: 1<<20 + 1}),
			stats.Disks{},
			emptyDirLimit,
			`Usage of EmptyDir volume "data" exceeds the limit "1Mi". `,
		},
		"no limit": {using(podOf("", 0, "", ""), uses{volume: 1 << 50, layer: 1 << 50}), stats.Disks{}, "", ""},
	} {
		limit, message, over := overLimit(c.pod, c.disks)
		if limit != c.limit || message != c.message || over != (c.limit != "") {
			t.Errorf("%s: %s %q", name, limit, message)
		}
	}
	for want, pod := range map[[2]bool]*v1.Pod{
		{false, false}: podOf("", 0, "", "1Mi"), {true, false}: sized, {true, true}: bounded,
	} {
		if has, layers := limited(pod); [2]bool{has, layers} != want {
			t.Errorf("limits %t, of layers %t; want %v", has, layers, want)
		}
	}
}

// total sets what a pod takes of local storage.
func total(c candidate, bytes uint64) candidate {
	c.stats.EphemeralStorage = &statsapi.FsStats{UsedBytes: &bytes}
	return c
}

// The limit of an init container counts for its pod, of which it may be the largest, and not for
// the init container alone, as in a kubelet.
func TestLimitsOfInitContainers(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init", Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{"ephemeral-storage": resource.MustParse("4Mi")},
		}}},
		Containers: []v1.Container{{Name: "app", Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Mi")},
		}}},
	}}
	for used, want := range map[uint64]Signal{4 << 20: "", 4<<20 + 1: podLimit} {
		if limit, _, _ := overLimit(total(using(pod, uses{}), used), stats.Disks{}); limit != want {
			t.Errorf("%d bytes: limit %q, want %q", used, limit, want)
		}
	}
}
