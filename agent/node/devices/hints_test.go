package devices

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/test/deviceplugin"
)

// on makes healthy devices on NUMA nodes: each is "id" or "id@node" or "id@node@node".
func on(list ...string) []*pluginapi.Device {
	var out []*pluginapi.Device
	for _, text := range list {
		id, nodes, _ := strings.Cut(text, "@")
		d := deviceplugin.Devices(id)[0]
		if nodes != "" {
			d.Topology = &pluginapi.TopologyInfo{}
			for node := range strings.SplitSeq(nodes, "@") {
				d.Topology.Nodes = append(d.Topology.Nodes, &pluginapi.NUMANode{ID: int64(node[0] - '0')})
			}
		}
		out = append(out, d)
	}
	return out
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
	return fmt.Sprint(len(hints), ": ", strings.ReplaceAll(strings.Join(out, "; "), " ", ""))
}

// Devices can be had on the nodes that have enough free ones. Devices that others have still count
// for where the devices would best be.
func TestHints(t *testing.T) {
	b := start(t, shortDir(t))
	b.plug(deviceplugin.Config{Devices: on("a@0", "b@0", "c@1", "d@1", "e@0@1")})
	b.plug(deviceplugin.Config{Resource: "example.com/flat", Socket: "flat.sock", Devices: deviceplugin.Devices("x", "y")})
	hints := func(uid, container string) string {
		pod := podOf(uid, container)
		return text(b.Begin(pod, never).Hints(&pod.Spec.Containers[0]))
	}
	pod := podOf("one", "-setup 2", "app 3", "side 1")
	if got := text(b.Begin(pod, never).PodHints()); got != "1: [01]!" {
		t.Errorf("the pod as a whole: %s", got)
	}
	for container, want := range map[string]string{
		"app 1": "1: [0]!,[1]!,[01]", "app 3": "1: [0]!,[1]!,[01]", "app 4": "1: [01]!", "app 6": "1: ", "app": "0: ",
	} {
		if got := hints("x", container); got != want {
			t.Errorf("%s: %s, want %s", container, got, want)
		}
	}
	p := b.Begin(pod, never)
	b.holds("one", false)
	err := p.Allocate(t.Context(), &pod.Spec.InitContainers[0], true, topology.Hint{Nodes: topology.MaskOf(1)})
	if got := b.has("one"); err != nil || got != "setup=c,d" {
		t.Errorf("%s, %v", got, err)
	}
	if got := text(p.Hints(&pod.Spec.Containers[0])); got != "1: [1]!,[01]" {
		t.Errorf("after an init container on node 1: %s", got)
	}
	if got := hints("x", "app 2"); got != "1: [0]!,[01]" {
		t.Errorf("with two devices taken: %s", got)
	}
	if got := hints("x", "app 4"); got != "1: " {
		t.Errorf("more than there are: %s", got)
	}
	if got := text(b.Begin(pod, never).Hints(&pod.Spec.InitContainers[0])); got != "1: [1]!,[01]" {
		t.Errorf("a container that has its devices: %s", got)
	}
	if got := text(b.Begin(podOf("one", "-setup 1", "app"), never).PodHints()); got != "1: " {
		t.Errorf("another number than it has: %s", got)
	}
	if b.Leaving() {
		t.Error("nobody is being ended")
	}
	if b.holds("one", true); !b.Leaving() {
		t.Error("one is being ended")
	}
}

// Devices on the nodes of the hint are taken first, then those on others, then those on none. Among
// them the plugin chooses.
func TestAllocateByHint(t *testing.T) {
	var asked []string
	b := start(t, shortDir(t))
	b.plug(deviceplugin.Config{
		Devices: on("a", "b@0", "c@0", "d@1", "e@1", "f@1"),
		Options: &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true},
		Prefer: func(r *pluginapi.ContainerPreferredAllocationRequest) []string {
			asked = append(asked, fmt.Sprint(r.GetAvailableDeviceIDs(), r.GetMustIncludeDeviceIDs()))
			return []string{"f", "c"}
		},
	})
	for _, c := range []struct {
		count, node int
		want, asked string
	}{
		{1, 0, "app=c", "[[b c][]]"},
		{2, 0, "app=b,c", "[]"},
		{2, 1, "app=d,f", "[[d e f][]]"},
		{4, 1, "app=c,d,e,f", "[[a b c d e f][d e f]]"},
		{5, 1, "app=b,c,d,e,f", "[[a b c d e f][d e f]]"},
		{3, 0, "app=b,c,f", "[[a b c d e f][b c]]"},
	} {
		asked = nil
		pod := podOf("x", fmt.Sprint("app ", c.count))
		b.holds("x", false)
		err := b.Begin(pod, never).Allocate(t.Context(), &pod.Spec.Containers[0], false,
			topology.Hint{Nodes: topology.MaskOf(c.node)})
		got, questions := b.has("x"), strings.ReplaceAll(fmt.Sprint(asked), "] [", "][")
		if err != nil || got != c.want || questions != c.asked {
			t.Errorf("%+v: %s, asked %s, %v", c, got, questions, err)
		}
		b.Release("x")
	}
}

// A container that has its devices has them where they are, wherever its init containers had
// theirs. Devices on nodes that the machine does not have cannot be had on any.
func TestOddHints(t *testing.T) {
	b := start(t, shortDir(t))
	b.cfg.Nodes = topology.MaskOf(0, 1)
	b.plug(deviceplugin.Config{Devices: on("a@0", "b@0", "c@1", "d@1")})
	b.plug(deviceplugin.Config{Resource: "example.com/far", Socket: "far.sock", Devices: on("x@7", "y")})
	pod := podOf("one", "-setup 2", "app 2")
	b.holds("one", false)
	setup, app := &pod.Spec.InitContainers[0], &pod.Spec.Containers[0]
	for node, c := range []*v1.Container{setup, app} {
		err := b.Begin(pod, never).Allocate(t.Context(), c, false, topology.Hint{Nodes: topology.MaskOf(node)})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := b.has("one"); got != "app=c,d setup=a,b" {
		t.Fatal(got)
	}
	p := b.Begin(pod, never)
	if err := p.Allocate(t.Context(), setup, true, topology.Hint{}); err != nil {
		t.Fatal(err)
	}
	if got := text(p.Hints(app)); got != "1: [1]!,[01]" {
		t.Errorf("after an init container on another node: %s", got)
	}
	far := podOf("far", "app")
	far.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/far": apiresource.MustParse("1")}
	if got := text(b.Begin(far, never).Hints(&far.Spec.Containers[0])); got != "1: " {
		t.Errorf("on a node that the machine lacks: %s", got)
	}
}
