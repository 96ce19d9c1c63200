package resize

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/cgroups"
)

// has is what a container asks for: "cpu", "memory" of the requests and of the limits. An empty
// text is none.
type has struct{ cpu, memory, cpuLimit, memoryLimit string }

func (h has) requirements() v1.ResourceRequirements {
	list := func(cpu, memory string) v1.ResourceList {
		out := v1.ResourceList{}
		for name, text := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
			if text != "" {
				out[name] = resource.MustParse(text)
			}
		}
		return out
	}
	return v1.ResourceRequirements{Requests: list(h.cpu, h.memory), Limits: list(h.cpuLimit, h.memoryLimit)}
}

// full asks for the same as its limits.
func full(cpu, memory string) has { return has{cpu, memory, cpu, memory} }

// podOf has containers a, b and so on.
func podOf(containers ...has) *v1.Pod {
	pod := &v1.Pod{}
	for i, h := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers,
			v1.Container{Name: string(rune('a' + i)), Resources: h.requirements()})
	}
	return pod
}

// whole gives a pod resources of its own.
func whole(pod *v1.Pod, h has) *v1.Pod {
	pod.Spec.Resources = ptr.To(h.requirements())
	return pod
}

func instances(names ...string) []Instance {
	var out []Instance
	for _, n := range names {
		out = append(out, Instance{ID: "id-" + n, Name: n})
	}
	return out
}

func TestOn(t *testing.T) {
	pod := podOf(full("1", "1Gi"), full("2", "2Gi"))
	if Of(pod).On(pod) != pod {
		t.Error("a pod with its own resources is another pod")
	}
	before := pod.DeepCopy()
	got := Of(podOf(full("3", "1Gi"), full("2", "2Gi"))).On(pod)
	if !Same(got, podOf(full("3", "1Gi"), full("2", "2Gi"))) || Same(got, pod) {
		t.Errorf("got %+v", Of(got))
	}
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Errorf("the pod was modified: %s", diff)
	}
	// What is remembered survives the checkpoint.
	data, err := json.Marshal(Begin(whole(pod, full("4", "4Gi")), instances("a")))
	if err != nil {
		t.Fatal(err)
	}
	var read State
	if err := json.Unmarshal(data, &read); err != nil ||
		!equality.Semantic.DeepEqual(read, *Begin(pod, instances("a"))) {
		t.Errorf("read %+v, %v", read, err)
	}
}

func TestFit(t *testing.T) {
	node := v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("4Gi")}
	others := []*v1.Pod{podOf(full("1", "1Gi")), whole(podOf(has{}), full("1", "1Gi"))}
	from := podOf(full("1", "1Gi"))
	for name, c := range map[string]struct {
		to   *v1.Pod
		node v1.ResourceList
		want *Pending
	}{
		"there is room": {podOf(full("2", "2Gi")), node, nil},
		"a little too much": {
			podOf(full("2001m", "1Gi")), node,
			&Pending{"Deferred", "Node didn't have enough resource: cpu, requested: 2001, used: 2000, capacity: 4000"},
		},
		"too much memory": {
			podOf(full("1", "3Gi")), node,
			&Pending{
				"Deferred",
				"Node didn't have enough resource: memory, requested: 3221225472, used: 2147483648, capacity: " +
					"4294967296",
			},
		},
		"more than there is": {
			podOf(full("5", "3Gi")), node,
			&Pending{"Infeasible", "Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000"},
		},
		"more memory than": {
			podOf(full("3", "5Gi")), node,
			&Pending{
				"Infeasible", "Node didn't have enough capacity: memory, requested: 5368709120, capacity: 4294967296",
			},
		},
		"less always fits": {
			podOf(full("500m", "512Mi")),
			v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("1")},
			nil,
		},
		"only the limits": {podOf(has{"1", "1Gi", "9", "9Gi"}), node, nil},
		"less of one": {
			podOf(full("3", "512Mi")), node,
			&Pending{"Deferred", "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"},
		},
		"a node without limits": {podOf(full("99", "1Ti")), nil, nil},
		"the pod as a whole": {
			whole(podOf(full("1", "1Gi")), full("3", "1Gi")), node,
			&Pending{"Deferred", "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Fit(c.to, from, others, c.node)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUpdates(t *testing.T) {
	restart := func(pod *v1.Pod, name v1.ResourceName) *v1.Pod {
		pod.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{
			{
				ResourceName: v1.ResourceCPU, RestartPolicy: v1.NotRequired,
			}, {
				ResourceName:  v1.ResourceMemory,
				RestartPolicy: v1.NotRequired,
			},
		}
		for i := range pod.Spec.Containers[0].ResizePolicy {
			if p := &pod.Spec.Containers[0].ResizePolicy[i]; p.ResourceName == name {
				p.RestartPolicy = v1.RestartContainer
			}
		}
		return pod
	}
	sidecar := func(pod *v1.Pod) *v1.Pod {
		pod.Spec.InitContainers, pod.Spec.Containers = pod.Spec.Containers, nil
		pod.Spec.InitContainers[0].RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		return pod
	}
	for name, c := range map[string]struct {
		from, to *v1.Pod
		running  []Instance
		want     []string
	}{
		"a sidecar with a policy": {
			sidecar(podOf(full("1", "1Gi"))), sidecar(restart(podOf(full("1", "2Gi")), v1.ResourceMemory)), instances("a"),
			[]string{"a restart"},
		},
		"a sidecar with a policy for other things": {
			sidecar(podOf(full("1", "1Gi"))), sidecar(restart(podOf(full("2", "1Gi")), v1.ResourceMemory)), instances("a"),
			[]string{"a"},
		},
		"nothing": {podOf(full("1", "1Gi")), podOf(full("1", "1Gi")), instances("a"), nil},
		"one of two": {
			podOf(full("1", "1Gi"), full("1", "1Gi")), podOf(full("1", "1Gi"), full("2", "1Gi")), instances("a", "b"),
			[]string{"b"},
		},
		"less before more": {
			podOf(full("1", "1Gi"), full("1", "2Gi")), podOf(full("1", "2Gi"), full("1", "1Gi")), instances("a", "b"),
			[]string{"b", "a"},
		},
		"memory before cpu": {
			podOf(full("1", "1Gi"), full("2", "1Gi")), podOf(full("1", "512Mi"), full("1", "1Gi")),
			instances("b", "a"),
			[]string{"a", "b"},
		},
		"a limit that comes is less": {
			podOf(has{cpu: "1"}, full("1", "1Gi")), podOf(has{cpu: "1", cpuLimit: "2"}, full("2", "1Gi")),
			instances("b", "a"),
			[]string{"a", "b"},
		},
		"what does not run": {podOf(full("1", "1Gi")), podOf(full("2", "1Gi")), nil, nil},
		"the pod's limit reaches those without their own": {
			whole(podOf(has{}, full("1", "1Gi")), full("4", "4Gi")),
			whole(podOf(has{}, full("1", "1Gi")), full("3", "4Gi")), instances("a", "b"),
			[]string{"a"},
		},
		"cpu with a policy": {
			podOf(full("1", "1Gi")), restart(podOf(full("2", "1Gi")), v1.ResourceCPU), instances("a"),
			[]string{"a restart"},
		},
		"memory with a policy about cpu": {
			podOf(full("1", "1Gi")), restart(podOf(full("1", "2Gi")), v1.ResourceCPU), instances("a"), []string{"a"},
		},
		"a request with a policy": {
			podOf(has{"1", "1Gi", "", "2Gi"}), restart(podOf(has{"1", "512Mi", "", "2Gi"}), v1.ResourceMemory),
			instances("a"),
			[]string{"a restart"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, u := range Begin(c.from, c.running).Updates(c.to, c.running) {
				text := u.Name
				if u.Restart {
					text += " restart"
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An instance that was made meanwhile has what was allocated when it was made. An instance that is
// gone is dropped.
func TestNote(t *testing.T) {
	from, to := podOf(full("1", "1Gi")), podOf(full("2", "1Gi"))
	s := Begin(from, []Instance{{"old", "a"}})
	s.Allocated = Of(to)
	s.Note(to, []Instance{{"old", "a"}, {"new", "a"}, {"stranger", "x"}})
	if old, fresh := s.Actuated["old"], s.Actuated["new"]; len(s.Actuated) != 2 || old.Limits.Cpu().String() != "1" ||
		fresh.Limits.Cpu().String() != "2" {
		t.Errorf("got %+v", s.Actuated)
	}
	s.Note(to, []Instance{{"new", "a"}})
	if _, there := s.Actuated["old"]; there || len(s.Updates(to, []Instance{{"new", "a"}})) > 0 {
		t.Errorf("got %+v", s.Actuated)
	}
}

// The cgroup has whichever limit is more while the containers change. This holds for each of cpu,
// memory and weight by itself.
func TestWide(t *testing.T) {
	options := cgroups.Options{CPUQuota: true}
	limits := func(pod *v1.Pod) [3]int64 {
		l := cgroups.PodLimits(pod, options)
		return [3]int64{int64(l.CPUShares), l.CPUQuota, l.Memory >> 20}
	}
	for name, c := range map[string]struct {
		from, to *v1.Pod
		want     [3]int64 // shares, quota, MiB
	}{
		"both grow":   {podOf(full("1", "1Gi")), podOf(full("2", "2Gi")), [3]int64{2048, 200000, 2048}},
		"both shrink": {podOf(full("2", "2Gi")), podOf(full("1", "1Gi")), [3]int64{2048, 200000, 2048}},
		"one of each": {podOf(full("2", "1Gi")), podOf(full("1", "2Gi")), [3]int64{2048, 200000, 2048}},
		"the sum counts": {
			podOf(full("1", "3Gi"), full("1", "1Gi")), podOf(full("1", "1Gi"), full("1", "2Gi")),
			[3]int64{2048, 200000, 4096},
		},
		"weight by itself": {
			podOf(has{"2", "1Gi", "4", "1Gi"}), podOf(has{"1", "1Gi", "5", "1Gi"}), [3]int64{2048, 500000, 1024},
		},
		"a limit that comes": {
			podOf(full("1", "1Gi"), has{cpu: "1"}), podOf(full("1", "1Gi"), has{"1", "", "2", "1Gi"}),
			[3]int64{2048, 0, 0},
		},
		"the pod as a whole": {
			whole(podOf(has{}), full("2", "2Gi")), whole(podOf(has{}), full("1", "3Gi")),
			[3]int64{2048, 200000, 3072},
		},
		"nothing": {podOf(full("1", "1Gi")), podOf(full("1", "1Gi")), [3]int64{1024, 100000, 1024}},
		"of one container, larger": {
			podOf(full("1", "1Gi"), full("1", "1Gi")), podOf(full("4", "1Gi"), full("1", "1Gi")),
			[3]int64{5120, 500000, 2048},
		},
	} {
		t.Run(name, func(t *testing.T) {
			running := instances("a", "b")
			s := Begin(c.from, running)
			if got := limits(Wide(s.Before(c.to, running), c.to)); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
			s.Note(c.to, nil)
			if got := Wide(s.Before(c.to, nil), c.to); name != "the pod as a whole" && got != c.to {
				t.Errorf("without containers it is held to %v", limits(got))
			}
		})
	}
	// Huge pages and other resources that cannot be resized stay as they are.
	huge := v1.ResourceName("hugepages-2Mi")
	from, to := podOf(full("2", "1Gi")), podOf(full("1", "1Gi"))
	for _, pod := range []*v1.Pod{from, to} {
		pod.Spec.Containers[0].Resources.Limits[huge] = resource.MustParse("4Mi")
		pod.Spec.Containers[0].Resources.Requests[huge] = resource.MustParse("4Mi")
	}
	running := instances("a")
	got := cgroups.PodLimits(Wide(Begin(from, running).Before(to, running), to), options)
	if got.HugePages[2<<20] != 4<<20 || got.CPUQuota != 200000 {
		t.Errorf("got %+v", got)
	}
}

func TestMessage(t *testing.T) {
	pod := podOf(has{cpu: "1", memoryLimit: "1Gi"})
	got := Message("Pod resize Deferred", pod, "no room")
	if want := `Pod resize Deferred: ` +
		`{"containers":[{"name":"a","resources":{"limits":{"memory":"1Gi"},"requests":{"cpu":"1"}}}],"generation":0,"error":"no room"}`; got != want {
		t.Errorf("got %s", got)
	}
	if got := Message("Pod resize started", pod, ""); strings.Contains(got, "error") {
		t.Errorf("got %s", got)
	}
}
