package allocation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/berthd/berth/agent/node/cpus"
	"github.com/berthd/berth/agent/node/devices/checkpoint"
	"github.com/berthd/berth/agent/node/room"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/configs"
)

type metrics struct{}

func (metrics) DevicePluginRegistered(string)          {}
func (metrics) DevicesAllocated(string, time.Duration) {}
func (metrics) PodResourcesAsked(_, _ string, _ bool)  {}
func (metrics) ResourceClaims(func(func(string, int))) {}

func (metrics) ClaimsWorkedOn(string, bool, time.Duration)           {}
func (metrics) DRADriverAsked(string, string, string, time.Duration) {}

func (metrics) MemoryPinned(bool) {}
func (metrics) CPUsPinned(bool)   {}

func (metrics) Allocated(v1.ResourceName, string, bool) {}
func (metrics) Assigned(v1.ResourceName, string)        {}

func (metrics) CPUsShared(int, int)         {}
func (metrics) CPUsOnNode(int, int)         {}
func (metrics) CPUsAligned(string, bool)    {}
func (metrics) CPUsAlignable()              {}
func (metrics) Alignable()                  {}
func (metrics) Aligned(bool, time.Duration) {}
func (metrics) Guaranteed(string, bool)     {}

// newManager returns a manager that knows a resource of an earlier run, whose plugin is not back,
// and a channel with the pods that it wakes.
func newManager(t *testing.T, gates map[string]bool) (*Manager, chan types.UID) {
	t.Helper()
	cfg := &configs.Config{}
	cfg.RootDir = t.TempDir()
	cfg.Kubelet.FeatureGates = gates
	dir := filepath.Join(cfg.RootDir, "device-plugins")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err := checkpoint.Write(filepath.Join(dir, checkpoint.File), []checkpoint.PodDevicesEntry{{
		PodUID: "old", ContainerName: "app", ResourceName: "example.com/card",
		DeviceIDs: checkpoint.DevicesPerNUMA{-1: {"a"}},
	}}, map[string][]string{"example.com/card": {"a"}})
	if err != nil {
		t.Fatal(err)
	}
	woken := make(chan types.UID, 8)
	cfg.Kubelet.CPUManagerPolicy = "none"
	m, err := New(cfg, Deps{
		Occupants: func() []room.Occupant { return nil }, Known: func() bool { return false },
		Changed: func() {}, Wake: func(uid types.UID) { woken <- uid }, Event: func(string, string, string) {},
		Metrics: metrics{}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m, woken
}

func podOf(uid, source string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: uid, UID: types.UID(uid), Annotations: map[string]string{"kubernetes.io/config.source": source},
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app", Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{"example.com/card": resource.MustParse("1")},
		}}}},
	}
}

func never(string) bool { return false }

// A pod that fails gets the kubelet's words. A static pod that waits is woken when the node has
// other devices.
func TestAnswers(t *testing.T) {
	m, woken := newManager(t, nil)
	if m.Wants(&v1.Pod{}) || m.Answered("api") || m.Refused("api") != nil {
		t.Error("an answer that nobody asked for")
	}
	if err := m.Allocate(t.Context(), podOf("api", "api"), never); err != nil {
		t.Fatal(err)
	}
	const want = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices " +
		"example.com/card, which is unexpected"
	if r := m.Refused("api"); !m.Answered("api") || r == nil || r.Later || r.Reason != "UnexpectedAdmissionError" ||
		r.Message != want {
		t.Errorf("%+v", r)
	}
	m.Decided(podOf("api", "api"), false, false)
	if m.Answered("api") {
		t.Error("the answer outlives the decision")
	}
	if err := m.Allocate(t.Context(), podOf("file", "file"), never); err != nil {
		t.Fatal(err)
	}
	if r := m.Refused("file"); r == nil || !r.Later || !strings.Contains(r.Detail, "waiting for the device plugin") {
		t.Errorf("%+v", r)
	}
	m.Decided(podOf("file", "file"), false, true)
	m.changed()
	if uid := <-woken; uid != "file" {
		t.Errorf("woke %s", uid)
	}
	m.Decided(podOf("file", "file"), true, false)
	m.changed()
	if len(woken) > 0 {
		t.Errorf("woke %s", <-woken)
	}
}

// An allocation that the agent's end cuts off is no answer: the next agent asks again.
func TestCutOffAllocation(t *testing.T) {
	m, _ := newManager(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Allocate(ctx, podOf("api", "api"), never); err == nil || m.Answered("api") {
		t.Errorf("%v, answered %v", err, m.Answered("api"))
	}
}

func TestHealthNeedsItsGate(t *testing.T) {
	on, _ := newManager(t, nil)
	off, _ := newManager(t, map[string]bool{"ResourceHealthStatus": false})
	pod := podOf("old", "api")
	if on.Health(pod) == nil || off.Health(pod) != nil {
		t.Errorf("on %v, off %v", on.Health(pod), off.Health(pod))
	}
}

// What a pod lacks has the kubelet's reasons.
func TestRejections(t *testing.T) {
	for want, err := range map[string]error{
		"SMTAlignmentError": &cpus.SMTAlignmentError{}, "UnexpectedAdmissionError": errors.New("odd"),
		"UnexpectedAdmissionError, later": &later{}, "TopologyAffinityError": &topology.Error{},
	} {
		r := rejection(fmt.Errorf("wrapped: %w", err))
		got := r.Reason
		if r.Later {
			got += ", later"
		}
		if got != want {
			t.Errorf("%v: %s", err, got)
		}
	}
	if rejection(nil) != nil {
		t.Error("a rejection without an error")
	}
}

// Under a policy that gives out cpu or memory, a Guaranteed pod cannot have another amount of it.
func TestUnresizable(t *testing.T) {
	guaranteed := func(cpu, memory string) *v1.Pod {
		pod := podOf("a", "api")
		list := v1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
		pod.Spec.Containers = []v1.Container{{
			Name: "app", Resources: v1.ResourceRequirements{Requests: list, Limits: list},
		}}
		return pod
	}
	burstable := guaranteed("1", "2Gi")
	burstable.Spec.Containers[0].Resources.Limits = nil
	const infeasible = "Resize is infeasible for Guaranteed Pods alongside "
	for _, c := range []struct {
		cpus, memory string
		wanted       *v1.Pod
		want         string
	}{
		{"none", "None", guaranteed("2", "2Gi"), ""},
		{"static", "Static", burstable, ""},
		{"static", "None", guaranteed("1", "2Gi"), ""},
		{"static", "None", guaranteed("2", "1Gi"), infeasible + `CPU Manager policy "static"`},
		{"none", "Static", guaranteed("2", "1Gi"), ""},
		{"none", "Static", guaranteed("1", "2Gi"), infeasible + `Memory Manager policy "Static"`},
		{"static", "Static", guaranteed("2", "2Gi"), infeasible + `CPU Manager policy "static"`},
	} {
		m := withPolicies(t, c.cpus, c.memory)
		got := m.Unresizable(c.wanted, guaranteed("1", "1Gi"))
		if c.want == "" && got != nil || c.want != "" && (got == nil || got.Message != c.want || got.Reason != "Infeasible") {
			t.Errorf("%s %s: %+v, want %q", c.cpus, c.memory, got, c.want)
		}
	}
}

// withPolicies returns a manager with policies for CPUs and memory, of this machine, which keeps a
// CPU and 1 MiB.
func withPolicies(t *testing.T, cpuPolicy, memoryPolicy string) *Manager {
	t.Helper()
	kept := v1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Mi")}
	cfg := &configs.Config{}
	cfg.RootDir = t.TempDir()
	cfg.Kubelet.CPUManagerPolicy, cfg.Kubelet.MemoryManagerPolicy = cpuPolicy, memoryPolicy
	cfg.Kubelet.ReservedMemory = []kubeletconfigv1beta1.MemoryReservation{{
		Limits: v1.ResourceList{"memory": kept["memory"]},
	}}
	m, err := New(cfg, Deps{
		Reserved: func() (system, kube v1.ResourceList) { return kept, nil },
		Amounts: func() (capacity, withheld v1.ResourceList) {
			return v1.ResourceList{"memory": resource.MustParse("1Gi")}, kept
		},
		Occupants: func() []room.Occupant { return nil }, Known: func() bool { return false },
		Changed: func() {}, Wake: func(types.UID) {}, Event: func(string, string, string) {},
		Metrics: metrics{}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A container gets the NUMA nodes of its memory at its start.
func TestMemoryNodes(t *testing.T) {
	m := withPolicies(t, "none", "Static")
	pod := podOf("a", "api")
	list := v1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1Mi")}
	pod.Spec.Containers = []v1.Container{{
		Name: "app", Resources: v1.ResourceRequirements{Requests: list, Limits: list},
	}}
	if err := m.Allocate(t.Context(), pod, func(string) bool { return false }); err != nil || !m.Wants(pod) {
		t.Fatal(err)
	}
	given, err := m.Container(t.Context(), pod, &pod.Spec.Containers[0])
	if err != nil || given.MemoryNodes != "0" || given.CPUs != "" {
		t.Errorf("%+v, %v", given, err)
	}
	pieces := pieces{m.Devices, m.Claims, m.cpus, m.memory}
	held, all := pieces.Memory("a", "app"), pieces.AllocatableMemory()
	if len(held) != 1 || held[0].GetSize() != 1<<20 || len(all) == 0 {
		t.Errorf("%v of %v", held, all)
	}
}
