package room

import (
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/agent/pod/resize"
)

func podOf(uid types.UID, cpu string) *v1.Pod {
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: "ns", Name: string(uid)},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "app", Resources: v1.ResourceRequirements{Requests: requests},
		}}},
	}
}

// node is a room of one cpu, and what it asked for.
type node struct {
	*Room
	cpu       string
	occupants []Occupant
	woken     []types.UID
	asked     []types.UID
}

func newNode(victims func(admit.Input, *admit.Rejection) ([]*v1.Pod, *admit.Rejection)) *node {
	if victims == nil {
		victims = func(_ admit.Input, refused *admit.Rejection) ([]*v1.Pod, *admit.Rejection) { return nil, refused }
	}
	n := &node{cpu: "1"}
	n.Room = New(Deps{
		Occupants: func() []Occupant { return n.occupants },
		Node:      func() admit.Node { return admit.Node{} },
		Allocatable: func() v1.ResourceList {
			return v1.ResourceList{v1.ResourceCPU: resource.MustParse(n.cpu), v1.ResourcePods: resource.MustParse("10")}
		},
		Victims: victims,
		Leave:   func(victim, _ *v1.Pod, _ *admit.Rejection) { n.asked = append(n.asked, victim.UID) },
		Wake:    func(uid types.UID) { n.woken = append(n.woken, uid) },
	})
	return n
}

// admit admits a pod, which occupies its room from then on, and returns "runs", "refused" or
// "waits".
func (n *node) admit(t *testing.T, pod *v1.Pod) string {
	t.Helper()
	d, err := n.Admit(t.Context(), pod, func(*admit.Rejection) error { return nil })
	switch {
	case err != nil:
		t.Fatal(err)
	case d.Waits != nil:
		return "waits"
	case d.Refused != nil:
		return "refused"
	}
	n.occupants = append(n.occupants, Occupant{Pod: pod})
	return "runs"
}

func TestRoomIsReadLive(t *testing.T) {
	n := newNode(nil)
	for i, want := range []string{"runs", "refused"} {
		if got := n.admit(t, podOf(types.UID(rune('a'+i)), "600m")); got != want {
			t.Errorf("pod %d of 600m %s, want %s", i, got, want)
		}
	}
	n.cpu = "2"
	if got := n.admit(t, podOf("c", "600m")); got != "runs" {
		t.Errorf("after the node has grown, the pod %s", got)
	}
}

// What pods request together counts those that are leaving, and not those that wait.
func TestRequested(t *testing.T) {
	n := newNode(nil)
	n.admit(t, podOf("a", "300m"))
	n.admit(t, podOf("b", "300m"))
	n.occupants[1].Terminating = true
	n.admit(t, podOf("waits", "600m"))
	n.occupants = append(n.occupants, Occupant{Pod: podOf("waits", "600m")})
	got := n.Requested()
	if got.Cpu().MilliValue() != 600 || got.Pods().Value() != 2 {
		t.Errorf("%s cpu of %s pods", got.Cpu(), got.Pods())
	}
}

func TestPodWaitsForPodsThatAreLeaving(t *testing.T) {
	n := newNode(nil)
	n.admit(t, podOf("old", "600m"))
	n.occupants[0].Terminating = true
	fresh := podOf("new", "600m")
	if got := n.admit(t, fresh); got != "waits" {
		t.Errorf("the pod %s", got)
	}
	n.occupants = nil
	n.Forget("old")
	if !slices.Equal(n.woken, []types.UID{"new"}) {
		t.Errorf("woken: %v", n.woken)
	}
	if got := n.admit(t, fresh); got != "runs" {
		t.Errorf("afterwards the pod %s", got)
	}
	n.woken = nil
	n.Freed()
	if len(n.woken) != 0 {
		t.Errorf("a pod that runs is woken: %v", n.woken)
	}
}

// Admission can ask other pods to leave: the pod waits for that, and runs afterwards.
func TestPodsLeaveForAnother(t *testing.T) {
	n := newNode(func(in admit.Input, refused *admit.Rejection) ([]*v1.Pod, *admit.Rejection) {
		if refused.Reason != "OutOfcpu" {
			t.Errorf("asked about %q", refused.Reason)
		}
		return in.Others, nil
	})
	n.admit(t, podOf("small", "600m"))
	critical := podOf("critical", "600m")
	if got := n.admit(t, critical); got != "waits" || !slices.Equal(n.asked, []types.UID{"small"}) {
		t.Errorf("the pod %s, and %v are asked to leave", got, n.asked)
	}
	if n.Admitted("critical") {
		t.Error("a pod that waits counts as admitted")
	}
	n.occupants[0].Terminating = true
	if got := n.admit(t, critical); got != "waits" || len(n.asked) != 1 {
		t.Errorf("while the other leaves, the pod %s, and %v are asked to leave", got, n.asked)
	}
	n.occupants = nil
	n.Forget("small")
	if got := n.admit(t, critical); got != "runs" {
		t.Errorf("afterwards the pod %s", got)
	}
}

func TestADecisionThatIsNotRecordedDoesNotCount(t *testing.T) {
	n := newNode(nil)
	full := errors.New("disk full")
	pod := podOf("a", "600m")
	_, err := n.Admit(t.Context(), pod, func(*admit.Rejection) error { return full })
	if !errors.Is(err, full) || n.Admitted("a") {
		t.Errorf("error %v, admitted %t", err, n.Admitted("a"))
	}
	n.admit(t, pod)
	wanted := podOf("a", "900m")
	if _, err := n.Resize(wanted, pod, func() error { return full }); !errors.Is(err, full) || n.Allocated(pod) != pod {
		t.Errorf("error %v, allocated %v", err, n.Allocated(pod))
	}
}

func TestResize(t *testing.T) {
	n := newNode(nil)
	pod, other := podOf("a", "300m"), podOf("b", "300m")
	n.admit(t, pod)
	n.admit(t, other)
	record := func() error { return nil }
	for cpu, want := range map[string]string{"800m": v1.PodReasonDeferred, "2": v1.PodReasonInfeasible} {
		pending, err := n.Resize(podOf("a", cpu), pod, record)
		if err != nil || pending == nil || pending.Reason != want {
			t.Errorf("to %s: %v, %v; want %s", cpu, pending, err, want)
		}
	}
	if _, err := n.Resize(podOf("a", "800m"), pod, record); err != nil {
		t.Fatal(err)
	}
	n.occupants = n.occupants[:1]
	n.Forget("b")
	if !slices.Equal(n.woken, []types.UID{"a"}) {
		t.Errorf("woken: %v", n.woken)
	}
	wanted := podOf("a", "800m")
	if pending, err := n.Resize(wanted, pod, record); err != nil || pending != nil || n.Allocated(pod) != wanted {
		t.Errorf("%v, %v, allocated %v", pending, err, n.Allocated(pod))
	}
	if got := n.admit(t, podOf("c", "300m")); got != "refused" {
		t.Errorf("beside what was allocated, a pod %s", got)
	}
}

// A pod whose containers have pieces of the node for themselves is not resized.
func TestPodThatCannotBeResized(t *testing.T) {
	n := newNode(nil)
	pod := podOf("a", "300m")
	n.admit(t, pod)
	fixed := &resize.Pending{Reason: v1.PodReasonInfeasible, Message: "fixed"}
	n.deps.Unresizable = func(_, _ *v1.Pod) *resize.Pending { return fixed }
	pending, err := n.Resize(podOf("a", "400m"), pod, func() error { return errors.New("recorded") })
	if err != nil || pending != fixed {
		t.Errorf("%v, %v", pending, err)
	}
}

// TestTryDecidesNothing checks that Try sees the node as it would be, and leaves it as it is.
func TestTryDecidesNothing(t *testing.T) {
	n := newNode(nil)
	for _, uid := range []types.UID{"a", "b"} {
		if got := n.admit(t, podOf(uid, "500m")); got != "runs" {
			t.Fatalf("%s %s", uid, got)
		}
	}
	nobody := func(*v1.Pod) bool { return false }
	newer := podOf("newer", "700m")
	newer.Name = "a" // replaces the pod a, and does not fit beside b
	for name, c := range map[string]struct {
		wanted []*v1.Pod
		leaves func(*v1.Pod) bool
		want   []types.UID
	}{
		"no room":            {[]*v1.Pod{podOf("c", "100m")}, nobody, []types.UID{"c"}},
		"after another":      {[]*v1.Pod{podOf("c", "100m")}, func(p *v1.Pod) bool { return p.UID == "a" }, nil},
		"a bigger version":   {[]*v1.Pod{newer}, nobody, []types.UID{"newer"}},
		"it and another":     {[]*v1.Pod{newer}, func(p *v1.Pod) bool { return p.UID == "b" }, nil},
		"only the first one": {[]*v1.Pod{podOf("b", "400m"), podOf("c", "200m")}, nobody, []types.UID{"c"}},
	} {
		var got []types.UID
		for uid, refused := range n.Try(c.wanted, c.leaves) {
			if got = append(got, uid); refused.Reason != "OutOfcpu" {
				t.Errorf("%s: %+v", name, refused)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: refused %v, want %v", name, got, c.want)
		}
	}
	if n.Admitted("c") || n.Admitted("newer") || len(n.woken) > 0 || len(n.asked) > 0 {
		t.Error("something was decided")
	}
}
