package cpus

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

// wholes makes pods have their CPUs as a whole, on a machine of two NUMA nodes of four CPUs.
func wholes(c *Config) {
	nodes(2)(c)
	c.Rules = podlevel.Rules{Managed: true, ByPod: true}
}

// wholeOf makes a pod with that much cpu of its own; see podOf. A container with the cpu 0 requests
// nothing.
func wholeOf(uid, cpu string, containers ...string) *v1.Pod {
	pod := podOf(uid, containers...)
	own := v1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi")}
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: own, Limits: own}
	for c := range pods.Starting(pod) {
		if c.Resources.Requests.Cpu().IsZero() {
			c.Resources = v1.ResourceRequirements{}
		}
	}
	return pod
}

// giveWhole allocates as admission does, and returns what each container has, as "app=1-2".
func (b *bed) giveWhole(t *testing.T, m *Manager, pod *v1.Pod, on ...int) string {
	t.Helper()
	b.holders[pod.UID] = false
	if err := m.Begin(pod).AllocatePod(t.Context(), topology.Hint{Nodes: topology.MaskOf(on...)}); err != nil {
		m.Release(pod.UID)
		delete(b.holders, pod.UID)
		return err.Error()
	}
	return has(t, m, pod)
}

func has(t *testing.T, m *Manager, pod *v1.Pod) string {
	t.Helper()
	var out []string
	for c := range pods.Starting(pod) {
		out = append(out, c.Name+"="+set(t, m, pod, c.Name))
	}
	return strings.Join(out, " ")
}

// A pod that cannot have its CPUs as a whole leaves nothing behind.
func TestWholeRefusals(t *testing.T) {
	b := &bed{}
	m := newManager(t, b, filepath.Join(t.TempDir(), "state"), wholes)
	const empty = "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for " +
		"shared containers"
	for want, pod := range map[string]*v1.Pod{
		"not enough cpus available to satisfy request: requested=8, available=7": wholeOf("a", "8", "app 0"),
		empty: wholeOf("b", "2", "app 2", "shares 0"),
	} {
		if got := b.giveWhole(t, m, pod); got != want || !m.shared.Equals(m.usable()) || len(m.pods)+len(m.assigned) > 0 {
			t.Errorf("%s, left %s, %v", got, m.shared, m.assigned)
		}
	}
	err := m.Begin(wholeOf("b", "2", "app 2", "shares 0")).AllocatePod(t.Context(), topology.Hint{})
	if pool := (*podlevel.EmptyPool)(nil); !errors.As(err, &pool) {
		t.Error(err)
	}
	b.holders["leaving"] = true
	if got := b.giveWhole(t, m, wholeOf("leaving", "5", "app 0")); !strings.HasPrefix(got, "app=") {
		t.Fatal(got)
	}
	b.holders["leaving"] = true
	got := b.giveWhole(t, m, wholeOf("a", "6", "app 0"))
	if got != "waiting until pods that are being removed give back their CPUs" {
		t.Error(got)
	}
	smt := newManager(t, &bed{}, filepath.Join(t.TempDir(), "state"), wholes,
		func(c *Config) { c.Choose.WholeCores = true })
	err = smt.Begin(wholeOf("a", "3", "app 0")).AllocatePod(t.Context(), topology.Hint{})
	if cores := (*SMTAlignmentError)(nil); !errors.As(err, &cores) {
		t.Error(err)
	}
}

// Containers get parts of the pod's CPUs: those that request whole CPUs have theirs for themselves,
// the others share what is left. Init containers have what the sidecars before them leave.
func TestWhole(t *testing.T) {
	for _, c := range []struct {
		pod    *v1.Pod
		want   string
		pinned string
	}{
		{wholeOf("a", "3", "app 0", "other 0"), "app=4-6 other=4-6", ""},
		{wholeOf("a", "3", "app 2", "other 0"), "app=4-5 other=6", "app"},
		{wholeOf("a", "3", "app 2", "other 1"), "app=4-5 other=6", "pod app other"},
		{wholeOf("a", "3", "app 500m", "other 1"), "app=4-5 other=6", "other"},
		{wholeOf("a", "4", "-init 4", "app 2", "other 0"), "init=4-7 app=4-5 other=6-7", "init app"},
		{wholeOf("a", "4", "-init 0", "+side 2", "-late 0", "app 0"), "init=4-7 side=4-5 late=6-7 app=6-7", "side"},
		{wholeOf("a", "4", "+side 0", "-init 2", "app 2"), "side=6-7 init=4-5 app=4-5", "init app"},
		{wholeOf("a", "1500m", "app 1"), "app=0-7", ""},
	} {
		b := &bed{}
		m := newManager(t, b, filepath.Join(t.TempDir(), "state"), wholes)
		if got := b.giveWhole(t, m, c.pod, 1); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
		var pinned []string
		if m.Pinned(c.pod, nil) {
			pinned = append(pinned, "pod")
		}
		for one := range pods.Starting(c.pod) {
			if m.Pinned(c.pod, one) {
				pinned = append(pinned, one.Name)
			}
		}
		if got := strings.Join(pinned, " "); got != c.pinned {
			t.Errorf("%s: %s have no quota", c.want, got)
		}
		m.Release("a")
		if !m.shared.Equals(m.usable()) || len(m.pods) > 0 {
			t.Errorf("after the release: %s, %v", m.shared, m.pods)
		}
	}
}

func TestWholeHints(t *testing.T) {
	b := &bed{}
	m := newManager(t, b, filepath.Join(t.TempDir(), "state"), wholes)
	for want, pod := range map[string]*v1.Pod{
		"[0]!,[1]!,[01]": wholeOf("a", "3", "app 2", "other 0"), "[1]!,[01]": wholeOf("a", "4", "app 0"),
		"": wholeOf("a", "2", "app 2", "other 0"), "none": wholeOf("a", "1500m", "app 1"),
	} {
		if hints := m.Begin(pod).PodHints(); text(hints) != want && (want != "none" || hints != nil) {
			t.Errorf("%s, want %s", text(hints), want)
		}
	}
	pod := wholeOf("a", "3", "app 2", "other 0")
	if got := b.giveWhole(t, m, pod, 1); got != "app=4-5 other=6" {
		t.Fatal(got)
	}
	if got := text(m.Begin(pod).PodHints()); got != "[1]!,[01]" {
		t.Errorf("a pod that has its CPUs: %s", got)
	}
	if got := b.giveWhole(t, m, pod, 0); got != "app=4-5 other=6" {
		t.Errorf("a second time: %s", got)
	}
}

// Under the scope container, containers have CPUs of the node for themselves, if each is like a
// Guaranteed pod.
func TestByContainer(t *testing.T) {
	b := &bed{}
	m := newManager(t, b, filepath.Join(t.TempDir(), "state"), wholes, func(c *Config) { c.Rules.ByPod = false })
	pod := wholeOf("a", "4", "app 2", "half 500m", "shares 0")
	if err := b.give(m, pod); err != nil {
		t.Fatal(err)
	}
	if got := has(t, m, pod); got != "app=2-3 half=0-1,4-7 shares=0-1,4-7" || len(m.pods) > 0 {
		t.Error(got)
	}
	app := &pod.Spec.Containers[0]
	if !m.Pinned(pod, app) || m.Pinned(pod, nil) {
		t.Error("a container has no quota, and its pod has one, as others share")
	}
	if got := strings.Join(b.whole, ", "); got != "cpu from node true, cpu node_exclusive" {
		t.Error(got)
	}
}

// The next run knows the pods as wholes. A run without the feature gate makes them share.
func TestWholeRestart(t *testing.T) {
	b, file := &bed{}, filepath.Join(t.TempDir(), "state")
	first := newManager(t, b, file, wholes)
	pod := wholeOf("a", "3", "app 2", "other 0")
	const want = "app=4-5 other=6"
	if got := b.giveWhole(t, first, pod, 1); got != want {
		t.Fatal(got)
	}
	again := newManager(t, b, file, wholes)
	if got := has(t, again, pod); got != want || !again.shared.Equals(parse(t, "0-3,7")) || len(b.events) > 0 {
		t.Errorf("%s, shared %s, %v", got, again.shared, b.events)
	}
	if again.Release("a"); !again.shared.Equals(parse(t, "0-7")) {
		t.Errorf("after the release: %s", again.shared)
	}
	if got := b.giveWhole(t, again, pod, 1); got != want {
		t.Fatal(got)
	}
	off := newManager(t, b, file, nodes(2))
	if got := has(t, off, pod); got != "app=0-7 other=0-7" || len(b.events) > 0 {
		t.Errorf("without the gate: %s, %v", got, b.events)
	}
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "podEntries") {
		t.Errorf("%s, %v", text, err)
	}
}

// A pod that was admitted under another policy gets its CPUs when its first container starts.
func TestWholeLate(t *testing.T) {
	b := &bed{}
	m := newManager(t, b, filepath.Join(t.TempDir(), "state"), wholes)
	pod := wholeOf("a", "2", "app 1", "other 0")
	b.holders["a"] = false
	if got := has(t, m, pod); got != "app=4 other=5" && got != "app=2 other=3" || !m.Wants(pod) {
		t.Error(got)
	}
}

func TestWholeCounts(t *testing.T) {
	b := &bed{}
	m := newManager(t, b, filepath.Join(t.TempDir(), "state"), wholes)
	b.giveWhole(t, m, wholeOf("a", "3", "app 2", "other 0"), 1)
	if b.counted != "3 4" || b.onNodes[1] != 3 {
		t.Errorf("%s, %v", b.counted, b.onNodes)
	}
	b.giveWhole(t, m, wholeOf("b", "8", "app 0"))
	slices.Sort(b.whole)
	const want = "[cpu from pod false cpu from pod true cpu from pod true cpu pod_exclusive cpu pod_shared]"
	if got := fmt.Sprint(b.whole); got != want {
		t.Error(got)
	}
}
