package memory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berthd/berth/agent/node/podlevel"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/internal/pods"
)

// wholes makes a manager whose pods have memory as a whole.
func wholes(t *testing.T, b *bed, file string, rules podlevel.Rules) *Manager {
	t.Helper()
	m := newManager(t, b, filepath.Join(t.TempDir(), "other"), 2)
	cfg := m.cfg
	cfg.Rules, cfg.File = rules, file
	return New(cfg, m.deps)
}

func all() podlevel.Rules { return podlevel.Rules{Managed: true, ByPod: true} }

// wholeOf makes a pod with that much memory of its own, "memory" or "memory huge"; see podOf. A
// container with the memory 0 requests nothing.
func wholeOf(uid, own string, containers ...string) *v1.Pod {
	pod := podOf(uid, containers...)
	list := podOf(uid, "own "+own).Spec.Containers[0].Resources.Requests
	list["cpu"] = resource.MustParse("4")
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: list, Limits: list}
	for c := range pods.Starting(pod) {
		if c.Resources.Requests.Memory().IsZero() {
			c.Resources = v1.ResourceRequirements{}
		}
	}
	return pod
}

// giveWhole allocates as admission does, and returns what each container has, as "app=0:2".
func (b *bed) giveWhole(t *testing.T, m *Manager, pod *v1.Pod, hint topology.Hint) string {
	t.Helper()
	b.holders[pod.UID] = false
	if err := m.Begin(pod).AllocatePod(t.Context(), hint); err != nil {
		m.Release(pod.UID)
		delete(b.holders, pod.UID)
		return err.Error()
	}
	return parts(m, pod)
}

// parts returns the nodes and the GiB of each container's memory.
func parts(m *Manager, pod *v1.Pod) string {
	var out []string
	for c := range pods.Starting(pod) {
		text := c.Name + "=" + m.nodes(pod.UID, c.Name)
		for _, block := range m.assigned[pod.UID][c.Name] {
			text += fmt.Sprintf(":%d", block.Size/gib)
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// Containers get parts of the pod's memory, all of the same nodes. The machine gives what the pod
// has as a whole, once.
func TestWhole(t *testing.T) {
	for _, c := range []struct {
		pod        *v1.Pod
		want, left string
	}{
		{wholeOf("a", "4Gi", "app 0", "other 0"), "app=1:4 other=1:4", "[6 4]"},
		{wholeOf("a", "4Gi", "app 3Gi", "other 0"), "app=1:3 other=1:1", "[6 4]"},
		{wholeOf("a", "4Gi 1Gi", "app 3Gi", "other 0"), "app=1:3 other=1:1:1", "[6 4]"},
		{
			wholeOf("a", "4Gi", "-init 4Gi", "+side 1Gi", "-late 0", "app 2Gi", "other 0"),
			"init=1:4 side=1:1 late=1:3 app=1:2 other=1:1", "[6 4]",
		},
		{wholeOf("a", "4Gi", "+side 0", "-init 0", "app 3Gi"), "side=1:1 init=1:4 app=1:3", "[6 4]"},
		{wholeOf("a", "12Gi", "app 0"), "app=0,1:12", "[0 2]"},
	} {
		b := &bed{}
		m := wholes(t, b, filepath.Join(t.TempDir(), "state"), all())
		hint := topology.Hint{Nodes: topology.MaskOf(1)}
		if got := b.giveWhole(t, m, c.pod, hint) + " " + left(m); got != c.want+" "+c.left {
			t.Errorf("%s, want %s %s", got, c.want, c.left)
		}
		if got := b.giveWhole(t, m, c.pod, topology.Hint{}); got != c.want {
			t.Errorf("a second time: %s", got)
		}
		for one := range pods.Starting(c.pod) {
			if _, err := m.Start(c.pod, one); err != nil || left(m) != c.left {
				t.Errorf("when %s starts: left %s, %v", one.Name, left(m), err)
			}
		}
		if m.Release("a"); left(m) != "[6 8]" || len(m.pods) > 0 || m.machine[1].NumberOfAssignments != 0 {
			t.Errorf("after the release: %s, %v", left(m), m.pods)
		}
	}
}

// A pod that cannot have its memory as a whole leaves nothing behind.
func TestWholeRefusals(t *testing.T) {
	b := &bed{}
	m := wholes(t, b, filepath.Join(t.TempDir(), "state"), all())
	for want, pod := range map[string]*v1.Pod{
		errNoNodes.Error(): wholeOf("a", "20Gi", "app 0"),
		"pod rejected, sum of exclusive container memory requests equals pod budget, leaving no memory for shared " +
			"containers": wholeOf("b", "2Gi", "app 2Gi", "shares 0"),
		"pod rejected, pod has shared init containers but no memory available for them": wholeOf("b", "2Gi", "+side 2Gi",
			"-init 0"),
	} {
		if got := b.giveWhole(t, m, pod, topology.Hint{}); got != want || left(m) != "[6 8]" {
			t.Errorf("%s, left %s, want %s", got, left(m), want)
		}
	}
	err := m.Begin(wholeOf("b", "2Gi", "app 2Gi", "shares 0")).AllocatePod(t.Context(), topology.Hint{})
	if empty := (*podlevel.EmptyPool)(nil); !errors.As(err, &empty) {
		t.Error(err)
	}
	b.giveWhole(t, m, wholeOf("leaving", "12Gi", "app 1Gi", "other 0"), topology.Hint{})
	b.holders["leaving"] = true
	if got := b.giveWhole(t, m, wholeOf("a", "10Gi", "app 0"), topology.Hint{}); got != (&Later{}).Error() {
		t.Error(got)
	}
	slices.Sort(b.whole)
	const want = "memory from pod false,memory from pod false,memory from pod false,memory from pod false," +
		"memory from pod false,memory from pod true,memory from pod true,memory pod_exclusive,memory pod_shared"
	if got := strings.Join(b.whole, ","); got != want || b.failed != 5 {
		t.Errorf("%s, %d failures", got, b.failed)
	}
}

func TestWholeHints(t *testing.T) {
	b := &bed{}
	m := wholes(t, b, filepath.Join(t.TempDir(), "state"), all())
	for want, pod := range map[string]*v1.Pod{
		"[0] true,[1] true,[0 1] false": wholeOf("a", "4Gi", "app 0"),
		"[0 1] true; [0 1] true":        wholeOf("a", "1Gi 3Gi", "app 0"),
		"":                              wholeOf("a", "4Gi", "app 4Gi", "shares 0"),
	} {
		if got := text(m.Begin(pod).PodHints()); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	pod := wholeOf("a", "4Gi", "app 1Gi", "shares 0")
	b.giveWhole(t, m, pod, topology.Hint{Nodes: topology.MaskOf(1)})
	if got := text(m.Begin(pod).PodHints()); got != "[1] true" {
		t.Errorf("a pod that has its memory: %s", got)
	}
}

// Under the scope container, containers have memory of the node, if each is like a Guaranteed pod.
func TestByContainer(t *testing.T) {
	b := &bed{}
	m := wholes(t, b, filepath.Join(t.TempDir(), "state"), podlevel.Rules{Managed: true})
	pod := wholeOf("a", "5Gi", "app 2Gi", "shares 0")
	if got := b.give(t, m, pod, topology.Hint{}); got != "app=0 shares=" || left(m) != "[4 8]" || len(m.pods) > 0 {
		t.Errorf("%s, left %s", got, left(m))
	}
	if got := strings.Join(b.whole, ", "); got != "memory from node true, memory node_exclusive" {
		t.Error(got)
	}
}

// The next run knows the pods as wholes. A run without the feature gate takes their memory back.
func TestWholeRestart(t *testing.T) {
	b, file := &bed{}, filepath.Join(t.TempDir(), "state")
	pod := wholeOf("a", "4Gi", "-init 4Gi", "app 1Gi", "shares 0")
	first := wholes(t, b, file, all())
	b.giveWhole(t, first, pod, topology.Hint{})
	if _, err := first.Start(pod, &pod.Spec.Containers[0]); err != nil {
		t.Fatal(err)
	}
	again := wholes(t, b, file, all())
	if got := parts(again, pod); got != "init= app=0:1 shares=0:3" || left(again) != "[2 8]" || len(b.events) > 0 {
		t.Errorf("%s, left %s, %v", got, left(again), b.events)
	}
	off := wholes(t, b, file, podlevel.Rules{})
	if got := parts(off, pod); got != "init= app= shares=" || left(off) != "[6 8]" || len(b.events) > 0 {
		t.Errorf("without the gate: %s, left %s, %v", got, left(off), b.events)
	}
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "podEntries") {
		t.Errorf("%s, %v", text, err)
	}
}

// A pod that was admitted under another policy gets its memory when its first container starts.
func TestWholeLate(t *testing.T) {
	b := &bed{}
	m := wholes(t, b, filepath.Join(t.TempDir(), "state"), all())
	pod := wholeOf("a", "4Gi", "app 1Gi", "shares 0")
	b.holders["a"] = false
	if nodes, err := m.Start(pod, &pod.Spec.Containers[0]); nodes != "0" || err != nil || !m.Wants(pod) {
		t.Errorf("%s, %v", nodes, err)
	}
	if got := parts(m, pod); got != "app=0:1 shares=0:3" || left(m) != "[2 8]" {
		t.Errorf("%s, left %s", got, left(m))
	}
	big := wholeOf("big", "30Gi", "app 0")
	if _, err := m.Start(big, &big.Spec.Containers[0]); !errors.Is(err, errNoNodes) {
		t.Error(err)
	}
}
