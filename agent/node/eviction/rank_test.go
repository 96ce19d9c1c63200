package eviction

import (
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/agent/node/stats"
)

// uses is what a pod of one container uses.
type uses struct {
	memory, layer, logs, volume, inodes, processes uint64
}

// podOf returns a pod of one container that requests memory and storage, with one emptyDir.
func podOf(name string, priority int32, memory, storage string) *v1.Pod {
	requests := v1.ResourceList{}
	for resourceName, text := range map[v1.ResourceName]string{
		v1.ResourceMemory: memory, v1.ResourceEphemeralStorage: storage,
	} {
		if text != "" {
			requests[resourceName] = resource.MustParse(text)
		}
	}
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
		Priority:   &priority,
		Containers: []v1.Container{{Name: "app", Resources: v1.ResourceRequirements{Requests: requests}}},
		Volumes:    []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
	}}
}

// using returns a candidate that uses an amount of everything.
func using(pod *v1.Pod, u uses) candidate {
	fs := func(n uint64) *statsapi.FsStats { return &statsapi.FsStats{UsedBytes: &n, InodesUsed: &u.inodes} }
	return candidate{pod: pod, stats: &statsapi.PodStats{
		Memory:       &statsapi.MemoryStats{WorkingSetBytes: &u.memory},
		ProcessStats: &statsapi.ProcessStats{ProcessCount: &u.processes},
		Containers: []statsapi.ContainerStats{{
			Name: "app", Memory: &statsapi.MemoryStats{WorkingSetBytes: &u.memory}, Rootfs: fs(u.layer), Logs: fs(u.logs),
		}},
		VolumeStats: []statsapi.VolumeStats{{Name: "data", FsStats: *fs(u.volume)}, {Name: "other", FsStats: *fs(1 << 40)}},
	}}
}

// The orders are those that the kubelet's rankMemoryPressure, rankDiskPressureFunc and
// rankPIDPressure give for the same pods.
func TestRank(t *testing.T) {
	const mi = 1 << 20
	for name, c := range map[string]struct {
		signal Signal
		disks  stats.Disks
		pods   map[string]candidate
		want   string
	}{
		"memory: over its request, then priority, then how much": {
			signal: MemoryAvailable,
			pods: map[string]candidate{
				"a-within":      using(podOf("", 0, "200Mi", ""), uses{memory: 150 * mi}),
				"b-over":        using(podOf("", 0, "100Mi", ""), uses{memory: 120 * mi}),
				"c-over-more":   using(podOf("", 0, "", ""), uses{memory: 80 * mi}),
				"d-over-high":   using(podOf("", 10, "", ""), uses{memory: 900 * mi}),
				"e-within-low":  using(podOf("", -5, "1Gi", ""), uses{memory: mi}),
				"f-at-request":  using(podOf("", 0, "100Mi", ""), uses{memory: 100 * mi}),
				"g-not-started": {pod: podOf("", 5, "1Gi", "")},
			},
			want: "g-not-started c-over-more b-over d-over-high e-within-low f-at-request a-within",
		},
		"allocatable memory": {
			signal: AllocatableMemoryAvailable,
			pods: map[string]candidate{
				"a": using(podOf("", 0, "", ""), uses{memory: 1}), "b": using(podOf("", 0, "", ""), uses{memory: 2}),
			},
			want: "b a",
		},
		"one disk: everything counts": {
			signal: NodeFsAvailable,
			pods: map[string]candidate{
				"a-volume": using(podOf("", 0, "", ""), uses{volume: 5 * mi}),
				"b-layer":  using(podOf("", 0, "", ""), uses{layer: 7 * mi}),
				"c-logs":   using(podOf("", 0, "", ""), uses{logs: 6 * mi}),
				"d-asked":  using(podOf("", -1, "", "1Gi"), uses{volume: 900 * mi}),
				"e-none":   using(podOf("", 0, "", ""), uses{memory: 900 * mi}),
			},
			want: "b-layer c-logs a-volume d-asked e-none",
		},
		"the node's disk beside one for images": {
			signal: NodeFsAvailable,
			disks:  stats.Disks{ImageFs: true},
			pods: map[string]candidate{
				"a-layer":  using(podOf("", 0, "", ""), uses{layer: 900 * mi}),
				"b-logs":   using(podOf("", 0, "", ""), uses{logs: mi}),
				"c-volume": using(podOf("", 0, "", ""), uses{volume: 2 * mi}),
			},
			want: "c-volume b-logs a-layer",
		},
		"the disk of images": {
			signal: ImageFsAvailable,
			disks:  stats.Disks{ImageFs: true},
			pods: map[string]candidate{
				"a-logs":  using(podOf("", 0, "", ""), uses{logs: 900 * mi}),
				"b-layer": using(podOf("", 0, "", ""), uses{layer: mi}),
			},
			want: "b-layer a-logs",
		},
		"inodes": {
			signal: NodeFsInodesFree,
			pods: map[string]candidate{
				"a": using(podOf("", 0, "", ""), uses{inodes: 1, volume: 900 * mi}),
				"b": using(podOf("", 0, "", ""), uses{inodes: 9}),
				"c": using(podOf("", -1, "", ""), uses{inodes: 5}),
			},
			want: "c b a",
		},
		"process ids: only priority and how many": {
			signal: PIDAvailable,
			pods: map[string]candidate{
				"a":             using(podOf("", 0, "", ""), uses{processes: 5}),
				"b":             using(podOf("", 0, "", ""), uses{processes: 500}),
				"c-low":         using(podOf("", -1, "", ""), uses{processes: 1}),
				"d-not-started": {pod: podOf("", 0, "", "")},
			},
			want: "c-low d-not-started b a",
		},
	} {
		names := slices.Sorted(maps.Keys(c.pods))
		for _, backwards := range []bool{false, true} {
			if backwards {
				slices.Reverse(names)
			}
			var list []candidate
			for _, name := range names {
				one := c.pods[name]
				one.pod.Name = name
				list = append(list, one)
			}
			rank(list, c.signal, c.disks)
			var got []string
			for _, one := range list {
				got = append(got, one.pod.Name)
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("%s: %s\nwant %s", name, text, c.want)
			}
		}
	}
}

// What the pod requests as a whole counts, else its containers together, and its overhead.
func TestRequest(t *testing.T) {
	whole := podOf("", 0, "1Mi", "")
	whole.Spec.Resources = &v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("5Mi")},
	}
	heavy := podOf("", 0, "1Mi", "")
	heavy.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: resource.MustParse("2Mi")}
	light := podOf("", 0, "", "")
	light.Spec.Overhead = heavy.Spec.Overhead
	for want, pod := range map[string]*v1.Pod{"5Mi": whole, "3Mi": heavy, "0": light} {
		if got := request(pod, v1.ResourceMemory); got.String() != want {
			t.Errorf("%s, want %s", got.String(), want)
		}
	}
}
