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

	"github.com/berthd/berth/agent/node/cpus"
	"github.com/berthd/berth/agent/node/devices/checkpoint"
	"github.com/berthd/berth/agent/node/room"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/configs"
)

type metrics struct{}

func (metrics) DevicePluginRegistered(string)          {}
func (metrics) DevicesAllocated(string, time.Duration) {}
func (metrics) PodResourcesAsked(string, bool)         {}
func (metrics) CPUsPinned(bool)                        {}
func (metrics) CPUsShared(int, int)                    {}
func (metrics) Aligned(bool, time.Duration)            {}
func (metrics) Guaranteed(string, bool)                {}

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
	m.Decided("api", false, false)
	if m.Answered("api") {
		t.Error("the answer outlives the decision")
	}
	if err := m.Allocate(t.Context(), podOf("file", "file"), never); err != nil {
		t.Fatal(err)
	}
	if r := m.Refused("file"); r == nil || !r.Later || !strings.Contains(r.Detail, "waiting for the device plugin") {
		t.Errorf("%+v", r)
	}
	m.Decided("file", false, true)
	m.changed()
	if uid := <-woken; uid != "file" {
		t.Errorf("woke %s", uid)
	}
	m.Decided("file", true, false)
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
	if on.Health("old") == nil || off.Health("old") != nil {
		t.Errorf("on %v, off %v", on.Health("old"), off.Health("old"))
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

// Only under the static policy a Guaranteed pod cannot be resized.
func TestUnresizable(t *testing.T) {
	m, _ := newManager(t, nil)
	if m.Unresizable(podOf("api", "api")) != nil {
		t.Error("a pod cannot be resized under the policy none")
	}
}
