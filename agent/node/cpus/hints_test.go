package cpus

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/berthd/berth/agent/node/cpus/choose"
	"github.com/berthd/berth/agent/node/topology"
)

// nodes is a machine with four CPUs on each NUMA node, two nodes in each socket.
func nodes(count int) func(*Config) {
	return func(c *Config) {
		c.Machine = nil
		for id := range 4 * count {
			c.Machine = append(c.Machine, choose.CPU{ID: id, Core: id / 2 * 2, Node: id / 4, Socket: id / 8})
		}
		c.Reserved = cpuset.New(0)
	}
}

func text(hints [][]topology.Hint) string {
	var out []string
	for _, resource := range hints {
		list := []string{}
		for _, h := range resource {
			mark := ""
			if h.Preferred {
				mark = "!"
			}
			list = append(list, fmt.Sprint(h.Nodes.Nodes(), mark))
		}
		out = append(out, strings.Join(list, ","))
	}
	return strings.ReplaceAll(strings.Join(out, "; "), " ", "")
}

func container(pod *v1.Pod, name string) *v1.Container {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return c
		}
	}
	return &pod.Spec.Containers[0]
}

// A container can have its CPUs where enough are free. It would rather have them on as few nodes as
// could ever have them.
func TestHints(t *testing.T) {
	b := &bed{}
	m := newManager(t, b, filepath.Join(t.TempDir(), "state"), nodes(2))
	for cpu, want := range map[string]string{
		"2": "[0]!,[1]!,[01]", "4": "[1]!,[01]", "5": "[01]!", "8": "", "1500m": "none",
	} {
		pod := podOf("x", "app "+cpu)
		hints := m.Begin(pod).Hints(&pod.Spec.Containers[0])
		if got := text(hints); got != want && (want != "none" || hints != nil) {
			t.Errorf("%s: %s, want %s", cpu, got, want)
		}
	}
	pod := podOf("init", "-setup 3", "app 2", "other 2")
	if got := text(m.Begin(pod).PodHints()); got != "[1]!,[01]" {
		t.Errorf("the pod as a whole: %s", got)
	}
	p := m.Begin(pod)
	err := p.Allocate(t.Context(), container(pod, "setup"), true, topology.Hint{Nodes: topology.MaskOf(1)})
	if err != nil {
		t.Fatal(err)
	}
	if got := text(p.Hints(container(pod, "app"))); got != "[1]!,[01]" {
		t.Errorf("after an init container on node 1: %s", got)
	}
	if got := text(m.Begin(pod).Hints(container(pod, "setup"))); got != "[1]!,[01]" {
		t.Errorf("a container that has its CPUs: %s", got)
	}
	changed := podOf("init", "-setup 4", "app 2")
	again := m.Begin(changed)
	if got := text(again.Hints(container(changed, "setup"))) + text(again.PodHints()); got != "" {
		t.Errorf("another number than it has: %s", got)
	}
}

// CPUs are taken on the nodes of the hint first, and elsewhere only if these have too few.
func TestAllocateByHint(t *testing.T) {
	for hint, want := range map[int]string{0: "1-3,4", 1: "4-7"} {
		b := &bed{}
		m := newManager(t, b, filepath.Join(t.TempDir(), "state"), nodes(2))
		pod := podOf("x", "app 4")
		err := m.Begin(pod).Allocate(t.Context(), &pod.Spec.Containers[0], false,
			topology.Hint{Nodes: topology.MaskOf(hint)})
		if got := m.assigned["x"]["app"]; err != nil || !got.Equals(parse(t, want)) {
			t.Errorf("node %d: %s, %v, want %s", hint, got, err, want)
		}
	}
}

func parse(t *testing.T, list string) cpuset.CPUSet {
	t.Helper()
	set, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Under align-by-socket, nodes in one socket are as good as one node, and CPUs come from the
// sockets of the hint.
func TestAlignBySocket(t *testing.T) {
	b := &bed{}
	m := newManager(t, b, filepath.Join(t.TempDir(), "state"), nodes(4), func(c *Config) { c.BySocket = true })
	pod := podOf("x", "app 6")
	p := m.Begin(pod)
	got := text(p.Hints(&pod.Spec.Containers[0]))
	if !strings.HasPrefix(got, "[01]!,[02]!,[03]!,[12]!,[13]!,[23]!,[012],") {
		t.Error(got)
	}
	one := podOf("y", "app 4")
	if got := text(m.Begin(one).Hints(&one.Spec.Containers[0])); !strings.HasPrefix(got, "[1]!,[2]!,[3]!,[01]!,[02],") {
		t.Error(got)
	}
	err := p.Allocate(t.Context(), &pod.Spec.Containers[0], false, topology.Hint{Nodes: topology.MaskOf(3)})
	if set := m.assigned["x"]["app"]; err != nil || !set.IsSubsetOf(parse(t, "8-15")) {
		t.Errorf("%s, %v", set, err)
	}
	if m.Leaving() {
		t.Error("nobody is being ended")
	}
	if b.holders["x"] = true; !m.Leaving() {
		t.Error("x is being ended")
	}
}
