package cpus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/node/cpus/choose"
	"github.com/berthd/berth/agent/node/cpus/state"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/configs"
)

// bed is what a manager calls.
type bed struct {
	mu        sync.Mutex
	holders   map[types.UID]bool
	instances []Instance
	fails     error
	updates   []string
	events    []string
	counted   string
	alignable bool
	aligned   []string
	whole     []string
	onNodes   map[int]int
}

func (b *bed) CPUsPinned(bool) {}

func (b *bed) CPUsOnNode(node, exclusive int) {
	if b.onNodes == nil {
		b.onNodes = map[int]int{}
	}
	b.onNodes[node] = exclusive
}

func (b *bed) CPUsAlignable() { b.alignable = true }

func (b *bed) CPUsAligned(boundary string, failed bool) {
	b.aligned = append(b.aligned, fmt.Sprintf("%s:%t", boundary, !failed))
}

func (b *bed) Allocated(name v1.ResourceName, source string, failed bool) {
	b.whole = append(b.whole, fmt.Sprintf("%s from %s %t", name, source, !failed))
}

func (b *bed) Assigned(name v1.ResourceName, kind string) {
	b.whole = append(b.whole, fmt.Sprintf("%s %s", name, kind))
}

func (b *bed) CPUsShared(exclusive, shared int) { b.counted = fmt.Sprint(exclusive, shared) }

func (b *bed) UpdateContainerResources(_ context.Context, id string, r *runtimeapi.ContainerResources) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.updates = append(b.updates, id+"="+r.GetLinux().GetCpusetCpus())
	return b.fails
}

// took returns the updates since the last call, sorted.
func (b *bed) took() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.updates)
	out := strings.Join(b.updates, " ")
	b.updates = nil
	return out
}

// eight is a machine of one socket with four cores of two CPUs: n and n+4.
func eight() choose.Machine {
	var out choose.Machine
	for id := range 8 {
		out = append(out, choose.CPU{ID: id, Core: id % 4})
	}
	return out
}

// newManager returns a manager of a machine with eight CPUs, of which 0 is reserved.
func newManager(t *testing.T, b *bed, file string, change ...func(*Config)) *Manager {
	t.Helper()
	if b.holders == nil {
		b.holders = map[types.UID]bool{}
	}
	cfg := Config{
		Policy: policyStatic, Reserved: cpuset.New(0), ReservedCount: 1, File: file, Machine: eight(), Period: time.Minute,
	}
	for _, c := range change {
		c(&cfg)
	}
	m, err := New(cfg, Deps{
		Holders: func() (map[types.UID]bool, bool) { return b.holders, true }, Runtime: b,
		Instances: func() []Instance { return b.instances },
		Event:     func(_, reason, message string) { b.events = append(b.events, reason+" "+message) },
		Metrics:   b, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// podOf makes a Guaranteed pod. Each container is "name cpu"; a name with a leading "-" is an init
// container, one with "+" a sidecar.
func podOf(uid string, containers ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
	for _, text := range containers {
		name, cpu, _ := strings.Cut(text, " ")
		list := v1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Mi")}
		c := v1.Container{
			Name: strings.TrimLeft(name, "-+"), Resources: v1.ResourceRequirements{Requests: list, Limits: list},
		}
		switch name[0] {
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

// give allocates as admission does.
func (b *bed) give(m *Manager, pod *v1.Pod) error {
	b.holders[pod.UID] = false
	err := m.allocateMissing(pod)
	if err != nil {
		m.Release(pod.UID)
	}
	return err
}

// set returns the CPUs with which a pod's container is made.
func set(t *testing.T, m *Manager, pod *v1.Pod, container string) string {
	t.Helper()
	got, err := m.Set(pod, &v1.Container{Name: container})
	if err != nil {
		t.Error(err)
	}
	return got.String()
}

func TestCPUsOfTheirOwn(t *testing.T) {
	b := &bed{}
	m := newManager(t, b, filepath.Join(t.TempDir(), "state"))
	pod := podOf("one", "-first 4", "+side 1", "app 2", "part 1500m")
	if !m.Wants(pod) {
		t.Error("it wants no CPUs")
	}
	if err := b.give(m, pod); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"first": "1-2,5-6", "side": "4", "app": "1,5", "part": "0,3,7"} {
		if got := set(t, m, pod, name); got != want {
			t.Errorf("%s has %s, want %s", name, got, want)
		}
	}
	if b.counted != "5 2" {
		t.Errorf("counted %s", b.counted)
	}
	if got := fmt.Sprint(m.Held("one", "app"), m.Held("one", "part"), m.Allocatable()); got != "[1 5] [] [1 2 3 4 5 6 7]" {
		t.Error(got)
	}
	burstable := podOf("b", "app 2")
	burstable.Spec.Containers[0].Resources.Limits = nil
	if m.Wants(burstable) || m.Wants(podOf("c", "app 500m")) {
		t.Error("a pod that shares gets CPUs of its own")
	}
	m.Release("one")
	if got := set(t, m, burstable, "app"); got != "0-7" {
		t.Errorf("after the end, others share %s", got)
	}
}

func TestRefusals(t *testing.T) {
	b := &bed{}
	m := newManager(t, b, filepath.Join(t.TempDir(), "state"))
	if err := b.give(m, podOf("one", "app 6")); err != nil {
		t.Fatal(err)
	}
	second := podOf("two", "app 2")
	const want = "not enough cpus available to satisfy request: requested=2, available=1"
	if err := b.give(m, second); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	b.holders["one"] = true
	later := (*Later)(nil)
	if err := b.give(m, second); !errors.As(err, &later) {
		t.Errorf("%v; it does not wait", err)
	}
	delete(b.holders, "one")
	if err := b.give(m, second); err != nil {
		t.Error(err)
	}
}

func TestWholeCores(t *testing.T) {
	b := &bed{}
	m := newManager(t, b, filepath.Join(t.TempDir(), "state"), func(c *Config) { c.Choose.WholeCores = true })
	for cpu, want := range map[string]string{
		"3": "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2",
		"8": "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 6, requested CPUs = 8, " +
			"CPUs per core = 2",
	} {
		alignment := (*SMTAlignmentError)(nil)
		if err := b.give(m, podOf("one", "app "+cpu)); !errors.As(err, &alignment) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A manager starts, and gives CPUs, where its state file cannot be written, such as on a full disk.
func TestStartWithoutStateFile(t *testing.T) {
	b := &bed{}
	file := filepath.Join(t.TempDir(), "none", "state")
	m := newManager(t, b, file)
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := b.give(m, podOf("one", "app 2")); err != nil {
		t.Errorf("when there is room again: %v", err)
	}
}

// Strictly reserved CPUs are nobody's. Without a list, as many are chosen as are reserved.
func TestReserved(t *testing.T) {
	m := newManager(t, &bed{}, filepath.Join(t.TempDir(), "state"), func(c *Config) {
		c.Strict, c.Reserved, c.ReservedCount = true, cpuset.New(), 2
	})
	if got := set(t, m, podOf("one", "app 500m"), "app"); got != "1-3,5-7" {
		t.Errorf("others share %s", got)
	}
}

// A restart of the agent keeps the CPUs. A file that does not fit is reported and replaced.
func TestStateFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	b := &bed{}
	pod := podOf("one", "app 2")
	if err := b.give(newManager(t, b, file), pod); err != nil {
		t.Fatal(err)
	}
	m := newManager(t, b, file)
	if got := set(t, m, pod, "app"); got != "1,5" || len(b.events) > 0 {
		t.Errorf("it has %s, events %q", got, b.events)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		string(good[:50]): "unexpected end of JSON input",
		`{"policyName":"static","defaultCpuSet":"0-5"}`:                                     "is about the CPUs 0-5",
		`{"policyName":"static","defaultCpuSet":"0-7","entries":{"u":{"c":"3"}}}`:           "which others share",
		`{"policyName":"static","defaultCpuSet":"1-7","entries":{"u":{"c":"0"}}}`:           "have the reserved CPUs 0",
		`{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`:                    "",
		`{"policyName":"static","defaultCpuSet":"0,2-4,6-7","entries":{"u":{"app":"1,5"}}}`: "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b := &bed{}
		newManager(t, b, file)
		if got := strings.Join(b.events, ""); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: events %q, want %s", text, got, want)
		}
	}
}

// Pods that have ended lose their CPUs when somebody looks, at the latest at the next
// reconciliation: in the state file, in the metrics, and for those who share, too.
func TestEndedPodsAreForgotten(t *testing.T) {
	for name, look := range map[string]func(*Manager){
		"reconciliation": func(m *Manager) { m.reconcile(t.Context()) },
		"another pod":    func(m *Manager) { m.Begin(podOf("two", "app 500m")) },
	} {
		b, file := &bed{}, filepath.Join(t.TempDir(), "state")
		m := newManager(t, b, file)
		if err := b.give(m, podOf("one", "app 2")); err != nil {
			t.Fatal(err)
		}
		<-m.changed
		delete(b.holders, "one")
		look(m)
		if s, err := state.Read(file); err != nil || len(s.Assigned) > 0 || s.Shared.String() != "0-7" {
			t.Errorf("%s: the state file has %+v, %v", name, s, err)
		}
		if b.counted != "0 7" {
			t.Errorf("%s: counted %s", name, b.counted)
		}
		select {
		case <-m.changed:
		default:
			t.Errorf("%s: nobody gives the CPUs to those who share", name)
		}
		look(m)
		select {
		case <-m.changed:
			t.Errorf("%s: a change although nothing has changed", name)
		default:
		}
	}
}

// Containers that run are moved when what they share changes, those that were made with it are not,
// and one that cannot be moved is tried again.
func TestMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{}
		m := newManager(t, b, filepath.Join(t.TempDir(), "state"))
		shares, pinned := podOf("shares", "app 500m"), podOf("pinned", "app 2")
		b.holders["shares"] = false
		set(t, m, shares, "app")
		b.instances = []Instance{{"shares", "app", "1"}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		if got := b.took(); got != "" {
			t.Errorf("moved %s", got)
		}
		b.mu.Lock()
		b.fails = errors.New("not now")
		b.mu.Unlock()
		if err := b.give(m, pinned); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := b.took(); got != "1=0,2-4,6-7" {
			t.Errorf("moved %s", got)
		}
		b.mu.Lock()
		b.fails = nil
		b.mu.Unlock()
		time.Sleep(90 * time.Second)
		if got := b.took(); got != "1=0,2-4,6-7" {
			t.Errorf("after the failure moved %s", got)
		}
		b.mu.Lock()
		b.fails = errdefs.ErrNotFound
		b.mu.Unlock()
		m.Release("pinned")
		synctest.Wait()
		if got := b.took(); got != "1=0-7" {
			t.Errorf("after the end moved %s", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestPolicyNone(t *testing.T) {
	b := &bed{}
	if newManager(t, b, filepath.Join(t.TempDir(), "state")); !b.alignable {
		t.Error("the policy static: the counts of aligned CPUs are not there from the start")
	}
	b.alignable = false
	m := newManager(t, b, filepath.Join(t.TempDir(), "state"), func(c *Config) {
		*c = Config{Policy: policyNone, File: c.File}
	})
	pod := podOf("one", "app 2")
	if m.Wants(pod) || b.give(m, pod) != nil || set(t, m, pod, "app") != "" || m.Allocatable() != nil ||
		b.alignable {
		t.Error("the policy none gives CPUs")
	}
}

func TestConfig(t *testing.T) {
	cfg := &configs.Config{}
	cfg.Kubelet.CPUManagerPolicy = policyStatic
	kept := func() (system, kube v1.ResourceList) {
		return v1.ResourceList{"cpu": resource.MustParse("500m")}, v1.ResourceList{"cpu": resource.MustParse("600m")}
	}
	cfg.Kubelet.CPUManagerPolicyOptions = map[string]string{
		"full-pcpus-only": "true", "align-by-socket": "true", "distribute-cpus-across-numa": "true",
	}
	got, err := ConfigFrom(cfg, kept)
	if err != nil || got.ReservedCount != 2 || !got.Choose.WholeCores || !got.Choose.OverNodes || !got.BySocket ||
		got.Strict || len(got.Machine) == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	cfg.Kubelet.TopologyManagerPolicy = topology.SingleNUMANode
	if _, err := ConfigFrom(cfg, kept); err == nil || !strings.Contains(err.Error(), "align-by-socket") {
		t.Error(err)
	}
	for want, options := range map[string]map[string]string{
		"strict-cpu-reservation: strconv":  {"strict-cpu-reservation": "maybe"},
		"no such option; there are align-": {"distribute-cpus": "true"},
		"it contradicts full-pcpus-only":   {"distribute-cpus-across-cores": "true", "full-pcpus-only": "true"},
		"it contradicts prefer-align-cpus-by-uncorecache": {
			"distribute-cpus-across-numa": "true", "prefer-align-cpus-by-uncorecache": "true",
		},
	} {
		cfg.Kubelet.CPUManagerPolicyOptions = options
		if _, err := ConfigFrom(cfg, kept); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", options, err, want)
		}
	}
	none := func() (system, kube v1.ResourceList) { return nil, nil }
	if _, err := ConfigFrom(cfg, none); err == nil || !strings.Contains(err.Error(), "some cpu must be reserved") {
		t.Error(err)
	}
}

// What containers got is counted by the alignment of their CPUs, and by NUMA node.
func TestCounts(t *testing.T) {
	twoNodes := func(c *Config) {
		for i := range c.Machine {
			c.Machine[i].Node, c.Machine[i].Cache = c.Machine[i].Core/2, c.Machine[i].Core/2
		}
	}
	for _, c := range []struct {
		full      bool
		app, want string
	}{
		{false, "app 2", "[uncore_cache:true] map[0:2 1:0]"},
		{false, "app 5", "[] map[0:1 1:4]"},
		{true, "app 4", "[physical_cpu:true uncore_cache:true] map[0:0 1:4]"},
		{true, "app 3", "[physical_cpu:false] map[0:0 1:0]"},
	} {
		b := &bed{}
		m := newManager(t, b, filepath.Join(t.TempDir(), "state"), twoNodes, func(cfg *Config) {
			cfg.Choose.WholeCores = c.full
		})
		err := b.give(m, podOf("one", c.app))
		if got := fmt.Sprint(b.aligned, " ", b.onNodes); got != c.want {
			t.Errorf("%s, whole cores %t: %s, want %s (%v)", c.app, c.full, got, c.want, err)
		}
	}
}
