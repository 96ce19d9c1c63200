package memory

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/pods"
)

const gib = 1 << 30

// bed is what a manager calls.
type bed struct {
	holders map[types.UID]bool
	events  []string
	failed  int
	whole   []string
}

func (b *bed) MemoryPinned(failed bool) {
	if failed {
		b.failed++
	}
}

func (b *bed) Allocated(name v1.ResourceName, source string, failed bool) {
	b.whole = append(b.whole, fmt.Sprintf("%s from %s %t", name, source, !failed))
}

func (b *bed) Assigned(name v1.ResourceName, kind string) {
	b.whole = append(b.whole, fmt.Sprintf("%s %s", name, kind))
}

// newManager returns a manager of a machine with some NUMA nodes of 10 GiB, of which node 0 keeps 2
// GiB, and each has 2 GiB of huge pages.
func newManager(t *testing.T, b *bed, file string, nodes int) *Manager {
	t.Helper()
	if b.holders == nil {
		b.holders = map[types.UID]bool{}
	}
	cfg := Config{
		Policy: policyStatic, File: file, Machine: Machine{}, Reserved: Machine{0: {v1.ResourceMemory: 2 * gib}},
	}
	for n := range nodes {
		cfg.Machine[n] = amounts{v1.ResourceMemory: 10 * gib, "hugepages-2Mi": 2 * gib}
	}
	return New(cfg, Deps{
		Holders: func() (map[types.UID]bool, bool) { return b.holders, true },
		Event:   func(_, reason, message string) { b.events = append(b.events, reason+" "+message) },
		Metrics: b, Logger: slog.New(slog.DiscardHandler),
	})
}

// podOf makes a Guaranteed pod. Each container is "name memory" or "name memory huge"; a name with
// a leading "-" is an init container, one with "+" a sidecar.
func podOf(uid string, containers ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
	for _, text := range containers {
		words := strings.Fields(text)
		list := v1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse(words[1])}
		if len(words) > 2 {
			list["hugepages-2Mi"] = resource.MustParse(words[2])
		}
		c := v1.Container{
			Name:      strings.TrimLeft(words[0], "-+"),
			Resources: v1.ResourceRequirements{Requests: list, Limits: list},
		}
		switch words[0][0] {
		case '-':
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case '+':
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

// give allocates as admission does, and returns what each container has, as "app=0,1".
func (b *bed) give(t *testing.T, m *Manager, pod *v1.Pod, hint topology.Hint) string {
	t.Helper()
	b.holders[pod.UID] = false
	p := m.Begin(pod)
	var out []string
	for c, ends := range pods.Starting(pod) {
		if err := p.Allocate(t.Context(), c, ends, hint); err != nil {
			m.Release(pod.UID)
			delete(b.holders, pod.UID)
			return err.Error()
		}
	}
	for c := range pods.Starting(pod) {
		out = append(out, c.Name+"="+m.nodes(pod.UID, c.Name))
	}
	return strings.Join(out, " ")
}

// left returns what the nodes have left of memory, in GiB.
func left(m *Manager) string {
	var out []uint64
	for n := range len(m.machine) {
		out = append(out, m.machine[n].MemoryMap[v1.ResourceMemory].Free/gib)
	}
	return fmt.Sprint(out)
}

// A step is a pod that comes, or "-uid" for one that goes, and what it has then.
func TestLife(t *testing.T) {
	for name, steps := range map[string][][2]string{
		"the first node with room": {
			{"a app 4Gi", "app=0 [2 8]"},
			{"b app 4Gi", "app=1 [2 4]"},
			{"c app 2Gi", "app=0 [0 4]"},
			{"d app 5Gi", errNoNodes.Error() + " [0 4]"},
			{"-b", "[0 8]"},
			{"d app 5Gi", "app=1 [0 3]"},
		},
		"two nodes together": {
			{"a app 9Gi", "app=0,1 [0 5]"},
			{"b app 1Gi", "app=0,1 [0 4]"},
			{"c app 9Gi", errNoNodes.Error() + " [0 4]"},
			{"-a", "[6 7]"},
			{"-b", "[6 8]"},
			{"b app 1Gi", "app=0 [5 8]"},
		},
		"more than the machine":   {{"a app 15Gi", errNoNodes.Error() + " [6 8]"}},
		"huge pages on that node": {{"a app 1Gi 2Gi", "app=0 [5 8]"}, {"b app 1Gi 1Gi", "app=1 [5 7]"}},
		"init containers give theirs on": {
			{"a -one 4Gi -two 3Gi +side 1Gi app 2Gi", "one=0 two=0 side=0 app=0 [2 8]"}, {"-a", "[6 8]"},
		},
	} {
		b := &bed{}
		m := newManager(t, b, filepath.Join(t.TempDir(), "state"), 2)
		for _, s := range steps {
			words := strings.SplitN(s[0], " ", 2)
			got := ""
			if uid, goes := strings.CutPrefix(s[0], "-"); goes {
				delete(b.holders, types.UID(uid))
				m.Begin(podOf("other"))
			} else if s[1] != "" {
				got = b.give(t, m, podOf(words[0], containers(words[1])...), topology.Hint{}) + " "
			}
			if s[1] != "" && got+left(m) != s[1] {
				t.Errorf("%s: %s: %s%s, want %s", name, s[0], got, left(m), s[1])
			}
		}
	}
}

// containers splits "-one 4Gi app 2Gi 1Gi" into containers.
func containers(text string) []string {
	var out []string
	for word := range strings.FieldsSeq(text) {
		if word[0] >= '0' && word[0] <= '9' {
			out[len(out)-1] += " " + word
		} else {
			out = append(out, word)
		}
	}
	return out
}

func text(hints [][]topology.Hint) string {
	var out []string
	for _, kind := range hints {
		list := []string{}
		for _, h := range kind {
			list = append(list, fmt.Sprint(h.Nodes.Nodes(), h.Preferred))
		}
		out = append(out, strings.Join(list, ","))
	}
	return strings.Join(out, "; ")
}

func TestHints(t *testing.T) {
	b := &bed{}
	m := newManager(t, b, filepath.Join(t.TempDir(), "state"), 2)
	hints := func(pod *v1.Pod) string { return text(m.Begin(pod).Hints(&pod.Spec.Containers[0])) }
	for want, pod := range map[string]*v1.Pod{
		"[0] true,[1] true,[0 1] false": podOf("x", "app 4Gi"),
		"[1] true,[0 1] false":          podOf("x", "app 7Gi"),
		"[0 1] true":                    podOf("x", "app 9Gi"),
		"":                              podOf("x", "app 15Gi"),
		"[0 1] true; [0 1] true":        podOf("x", "app 1Gi 3Gi"),
	} {
		if got := hints(pod); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := text(m.Begin(podOf("x", "-one 9Gi", "app 2Gi", "b 3Gi")).PodHints()); got != "[0 1] true" {
		t.Errorf("the pod as a whole: %s", got)
	}
	one := podOf("one", "app 4Gi")
	if got := b.give(t, m, one, topology.Hint{Nodes: topology.MaskOf(1), Preferred: true}); got != "app=1" {
		t.Errorf("on the node of the hint: %s", got)
	}
	if got := hints(one) + text(m.Begin(one).PodHints()); got != "[1] true[1] true" {
		t.Errorf("a container that has its memory: %s", got)
	}
	if got := hints(podOf("one", "app 5Gi")); got != "" {
		t.Errorf("another amount than it has: %s", got)
	}
	if got := hints(podOf("x", "app 6Gi")); got != "[0] true" {
		t.Errorf("a node that gives memory alone joins no other: %s", got)
	}
	for _, c := range []struct {
		pod  *v1.Pod
		hint topology.Hint
		want string
	}{
		{podOf("x", "app 5Gi"), topology.Hint{Nodes: topology.MaskOf(1), Preferred: true}, errNoMore.Error()},
		{podOf("x", "app 2Gi"), topology.Hint{Nodes: topology.MaskOf(0, 1)}, errApart.Error()},
	} {
		if got := b.give(t, m, c.pod, c.hint); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	b.holders["one"] = true
	got := b.give(t, m, podOf("x", "app 5Gi 2Gi", "b 5Gi"), topology.Hint{})
	if got != (&Later{}).Error() || !m.Leaving() {
		t.Errorf("while a pod is being ended: %s", got)
	}
	if got := b.give(t, m, podOf("x", "app 30Gi"), topology.Hint{}); got != errNoNodes.Error() {
		t.Errorf("more than the machine has, while a pod is being ended: %s", got)
	}
	if b.failed != 4 {
		t.Errorf("%d failures counted", b.failed)
	}
}

// A manager starts, and gives memory, where its state file cannot be written, such as on a full
// disk.
func TestStartWithoutStateFile(t *testing.T) {
	b := &bed{}
	file := filepath.Join(t.TempDir(), "none", "state")
	m := newManager(t, b, file, 2)
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := b.give(t, m, podOf("one", "app 1Gi"), topology.Hint{}); got != "app=0" {
		t.Errorf("when there is room again: %s", got)
	}
}

// A NUMA node may have CPUs and no memory. It gives none, and harms nobody.
func TestNodeWithoutMemory(t *testing.T) {
	b := &bed{holders: map[types.UID]bool{}}
	cfg := Config{Policy: policyStatic, File: filepath.Join(t.TempDir(), "state"), Machine: Machine{
		0: {v1.ResourceMemory: 10 * gib, "hugepages-2Mi": 2 * gib}, 1: {v1.ResourceMemory: 0},
	}}
	deps := Deps{
		Holders: func() (map[types.UID]bool, bool) { return b.holders, true }, Event: func(_, _, _ string) {},
		Metrics: b, Logger: slog.New(slog.DiscardHandler),
	}
	m := New(cfg, deps)
	pod := podOf("one", "app 1Gi 1Gi")
	if got := b.give(t, m, pod, topology.Hint{Nodes: topology.MaskOf(0, 1)}); got != "app=0,1" {
		t.Errorf("with both nodes: %s", got)
	}
	m = New(cfg, deps)
	if got := m.nodes("one", "app"); got != "0,1" {
		t.Errorf("after a restart: %s", got)
	}
	m.Release("one")
	if got := b.give(t, m, podOf("two", "app 8Gi 2Gi"), topology.Hint{Nodes: topology.MaskOf(0)}); got != "app=0" {
		t.Errorf("after it is gone: %s", got)
	}
}

// A container starts on the nodes that its memory is from. The init containers before it have
// ended, and what they had more than the others is free for other pods.
func TestStart(t *testing.T) {
	b := &bed{}
	file := filepath.Join(t.TempDir(), "state")
	m := newManager(t, b, file, 2)
	pod := podOf("a", "-one 5Gi", "+side 1Gi", "-two 2Gi", "app 3Gi")
	if got := b.give(t, m, pod, topology.Hint{}); got != "one=0 side=0 two=0 app=0" {
		t.Fatal(got)
	}
	start := func(m *Manager, pod *v1.Pod, container string) string {
		nodes, err := m.Start(pod, &v1.Container{Name: container})
		if err != nil {
			t.Error(err)
		}
		return nodes + left(m)
	}
	for _, c := range [][2]string{
		{"one", "0[1 8]"}, {"side", "0[1 8]"}, {"debug", "[1 8]"}, {"two", "0[1 8]"}, {"app", "0[2 8]"},
	} {
		if got := start(m, pod, c[0]); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
	if again := newManager(t, b, file, 2); left(again) != "[2 8]" || len(b.events) > 0 {
		t.Errorf("the next run: %s, %v", left(again), b.events)
	}
	b.holders["late"] = false
	if got := start(m, podOf("late", "-one 4Gi", "app 2Gi"), "app"); got != "0[0 8]" {
		t.Errorf("a pod of another policy: %s", got)
	}
	if _, err := m.Start(podOf("big", "a 8Gi", "b 1Gi"), &v1.Container{Name: "a"}); !errors.Is(err, errNoNodes) ||
		left(m) != "[0 8]" {
		t.Errorf("a pod of another policy that does not fit: %v, left %s", err, left(m))
	}
}

// What others than Guaranteed pods use is no matter of the manager, nor is anything under None.
func TestWhoWants(t *testing.T) {
	m := newManager(t, &bed{}, filepath.Join(t.TempDir(), "state"), 1)
	burstable := podOf("x", "app 1Gi")
	burstable.Spec.Containers[0].Resources.Limits = nil
	none := &Manager{}
	if m.Wants(burstable) || !m.Wants(podOf("x", "app 1Gi")) || none.Wants(podOf("x", "app 1Gi")) {
		t.Error("the wrong pods want memory")
	}
}

// The next run knows what containers have. A file that does not fit is reported and replaced.
func TestRestart(t *testing.T) {
	b, file := &bed{}, filepath.Join(t.TempDir(), "state")
	first := newManager(t, b, file, 2)
	if got := b.give(t, first, podOf("a", "app 4Gi"), topology.Hint{}); got != "app=0" {
		t.Fatal(got)
	}
	again := newManager(t, b, file, 2)
	held := again.Held("a", "app")
	if again.nodes("a", "app") != "0" || left(again) != "[2 8]" || len(held) != 1 || held[0].GetSize() != 4*gib ||
		len(again.Allocatable()) != 4 || len(b.events) > 0 {
		t.Errorf("%s, left %s, %v, %v, %v", again.nodes("a", "app"), left(again), held, again.Allocatable(), b.events)
	}
	other := newManager(t, b, file, 3)
	if other.nodes("a", "app") != "" || left(other) != "[6 8 8]" || len(b.events) != 1 ||
		!strings.Contains(b.events[0], "MemoryManagerStateUnusable") || !strings.Contains(b.events[0], "2 NUMA nodes") {
		t.Errorf("%s, left %s, %v", other.nodes("a", "app"), left(other), b.events)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if m := newManager(t, b, file, 2); left(m) != "[6 8]" || len(b.events) != 2 || !strings.Contains(b.events[1], file) {
		t.Errorf("%v", b.events)
	}
}

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"node/online":        "0-1",
		"node/node0/meminfo": "Node 0 MemTotal:       8 kB\nNode 0 MemFree: 1 kB",
		"node/node1/meminfo": "Node 1 MemTotal: 4 kB",
		"node/node0/hugepages/hugepages-2048kB/nr_hugepages": "3",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	node := func() (capacity, withheld v1.ResourceList) {
		return v1.ResourceList{"memory": resource.MustParse("12Ki")}, v1.ResourceList{"memory": resource.MustParse("3Ki")}
	}
	reserve := func(n int32, amount string) kubeletconfigv1beta1.MemoryReservation {
		return kubeletconfigv1beta1.MemoryReservation{
			NumaNode: n, Limits: v1.ResourceList{"memory": resource.MustParse(amount)},
		}
	}
	cfg := &configs.Config{}
	cfg.Kubelet.MemoryManagerPolicy = policyStatic
	for _, c := range []struct {
		reserved []kubeletconfigv1beta1.MemoryReservation
		want     string
	}{
		{
			[]kubeletconfigv1beta1.MemoryReservation{reserve(0, "1Ki"), reserve(1, "2Ki")},
			"map[0:map[hugepages-2Mi:6291456 memory:8192] 1:map[memory:4096]] map[0:map[memory:1024] 1:map[memory:2048]]",
		},
		{nil, "the NUMA nodes keep 0 of memory together, but systemReserved, kubeReserved and evictionHard keep 3Ki"},
		{[]kubeletconfigv1beta1.MemoryReservation{reserve(2, "3Ki")}, "this machine has no NUMA node 2"},
	} {
		cfg.Kubelet.ReservedMemory = c.reserved
		got, err := ConfigFrom(cfg, dir, node)
		text := fmt.Sprint(got.Machine, " ", got.Reserved)
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, c.want) {
			t.Errorf("%v: %s, want %s", c.reserved, text, c.want)
		}
	}
	whole := v1.ResourceList{"memory": resource.MustParse("1Ki"), "cpu": resource.MustParse("1")}
	if got, err := Read(t.TempDir(), whole); err != nil || fmt.Sprint(got) != "map[0:map[memory:1024]]" {
		t.Errorf("a kernel without NUMA: %v, %v", got, err)
	}
}
