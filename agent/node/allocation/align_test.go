package allocation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/configs"
)

// fakeShare is a share with the same hints for each container, and others for the pod.
type fakeShare struct {
	hints, podHints [][]topology.Hint
	fails           error
	got             *[]string
}

func (s fakeShare) Hints(*v1.Container) [][]topology.Hint { return s.hints }
func (s fakeShare) PodHints() [][]topology.Hint           { return s.podHints }

func (s fakeShare) Allocate(_ context.Context, c *v1.Container, ends bool, hint topology.Hint) error {
	*s.got = append(*s.got, fmt.Sprintf("%s%v%v%v", c.Name, hint.Nodes.Nodes(), hint.Preferred, ends))
	return s.fails
}

// hint is a preferred hint of some nodes.
func hint(nodes ...int) topology.Hint {
	return topology.Hint{Nodes: topology.MaskOf(nodes...), Preferred: true}
}

// Each container gets its pieces of all kinds before the next one does, on the nodes that suit all
// kinds; with the scope pod, these are those that suit the pod.
func TestShare(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init"}}, Containers: []v1.Container{{Name: "app"}},
	}}
	both := [][]topology.Hint{{hint(0), hint(1)}}
	for _, c := range []struct {
		policy topology.Policy
		fails  error
		want   string
	}{
		{topology.Policy{Name: topology.None}, nil, "init[]falsetrue init[]falsetrue app[]falsefalse app[]falsefalse"},
		{
			topology.Policy{Name: topology.SingleNUMANode},
			nil,
			"init[1]truetrue init[1]truetrue app[1]truefalse app[1]truefalse",
		},
		{
			topology.Policy{Name: topology.Restricted, ByPod: true},
			nil,
			"init[0]truetrue init[0]truetrue app[0]truefalse app[0]truefalse",
		},
		{topology.Policy{Name: topology.BestEffort}, errors.New("none left"), "init[1]truetrue none left"},
	} {
		m, _ := newManager(t, nil)
		var got []string
		m.topology = &c.policy
		m.topology.Nodes = topology.MaskOf(0, 1)
		err := m.share(t.Context(), pod, []share{
			fakeShare{both, [][]topology.Hint{{hint(0)}}, c.fails, &got},
			fakeShare{[][]topology.Hint{{hint(1)}}, nil, nil, &got},
		})
		if err != nil {
			got = append(got, err.Error())
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%+v: %s, want %s", c.policy, text, c.want)
		}
	}
}

// A pod that cannot have its pieces on the same nodes gets nothing, and the kubelet's words.
func TestApart(t *testing.T) {
	for name, ok := range map[string]bool{
		topology.BestEffort: true, topology.Restricted: false, topology.SingleNUMANode: false,
	} {
		m, _ := newManager(t, nil)
		var got []string
		m.topology = &topology.Policy{Name: name, Nodes: topology.MaskOf(0, 1)}
		err := m.share(t.Context(), podOf("x", "api"), []share{
			fakeShare{[][]topology.Hint{{hint(0)}}, nil, nil, &got}, fakeShare{[][]topology.Hint{{hint(1)}}, nil, nil, &got},
		})
		if (err == nil) != ok || (len(got) > 0) != ok {
			t.Errorf("%s: %v, %v", name, err, got)
		}
		if r := rejection(err); !ok && (r.Reason != "TopologyAffinityError" ||
			r.Message != "Resources cannot be allocated with Topology locality") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// guarantees counts what was put on one NUMA node, and what could not be.
type guarantees struct {
	metrics
	alignable bool
	scopes    []string
	// pods are the pods on which admission has decided.
	pods []string
}

func (g *guarantees) Aligned(failed bool, _ time.Duration) {
	g.pods = append(g.pods, fmt.Sprintf("pod:%t", !failed))
}

func (g *guarantees) Alignable() { g.alignable = true }

func (g *guarantees) Guaranteed(scope string, failed bool) {
	g.scopes = append(g.scopes, fmt.Sprintf("%s:%t", scope, !failed))
}

// The counts are there from the start, if the policy aligns.
func TestCountsExistFromTheStart(t *testing.T) {
	for policy, want := range map[string]bool{
		topology.None: false, topology.BestEffort: true, topology.SingleNUMANode: true,
	} {
		cfg := &configs.Config{}
		cfg.RootDir, cfg.Kubelet.CPUManagerPolicy, cfg.Kubelet.TopologyManagerPolicy = t.TempDir(), "none", policy
		counts := &guarantees{}
		_, err := New(cfg, Deps{
			Event: func(string, string, string) {}, Metrics: counts, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil || counts.alignable != want {
			t.Errorf("%s: %t, %v", policy, counts.alignable, err)
		}
	}
}

// A container counts when it has its pieces, a pod when all its containers have them. Whoever gets
// none although there are nodes for it does not count.
func TestGuaranteesCount(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "one"}, {Name: "two"}}}}
	one, other := [][]topology.Hint{{hint(0)}}, [][]topology.Hint{{hint(1)}}
	for _, c := range []struct {
		policy topology.Policy
		second [][]topology.Hint
		fails  error
		want   string
	}{
		{topology.Policy{Name: topology.SingleNUMANode}, one, nil, "container:true container:true"},
		{topology.Policy{Name: topology.SingleNUMANode, ByPod: true}, one, nil, "pod:true"},
		{topology.Policy{Name: topology.SingleNUMANode}, other, nil, "container:false"},
		{topology.Policy{Name: topology.SingleNUMANode, ByPod: true}, other, nil, "pod:false"},
		{topology.Policy{Name: topology.SingleNUMANode}, one, errors.New("none left"), ""},
		{topology.Policy{Name: topology.SingleNUMANode, ByPod: true}, one, errors.New("none left"), ""},
		{topology.Policy{Name: topology.Restricted}, one, nil, ""},
	} {
		m, _ := newManager(t, nil)
		var got []string
		counts := &guarantees{}
		m.deps.Metrics = counts
		m.topology = &c.policy
		m.topology.Nodes = topology.MaskOf(0, 1)
		shares := []share{fakeShare{one, one, nil, &got}, fakeShare{c.second, c.second, c.fails, &got}}
		err := m.share(t.Context(), pod, shares)
		if text := strings.Join(counts.scopes, " "); text != c.want {
			t.Errorf("%+v: %s, want %s (%v)", c.policy, text, c.want, err)
		}
	}
}

// Each pod counts once under each policy, when admission has decided, as with a kubelet: also one
// that wants no pieces. Under the policy none, nothing fails because of the topology.
func TestAdmissionsCount(t *testing.T) {
	plain := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init"}}, Containers: []v1.Container{{Name: "app"}},
	}}
	for _, c := range []struct {
		policy topology.Policy
		pod    *v1.Pod
		want   string
	}{
		{topology.Policy{Name: topology.None}, plain, "[pod:true] []"},
		{topology.Policy{Name: topology.None}, podOf("api", "api"), "[pod:true] []"},
		{topology.Policy{Name: topology.BestEffort}, plain, "[pod:true] []"},
		{topology.Policy{Name: topology.BestEffort}, podOf("api", "api"), "[pod:false] []"},
		{topology.Policy{Name: topology.SingleNUMANode}, plain, "[pod:true] [container:true container:true]"},
		{topology.Policy{Name: topology.SingleNUMANode, ByPod: true}, plain, "[pod:true] [pod:true]"},
	} {
		m, _ := newManager(t, nil)
		counts := &guarantees{}
		m.deps.Metrics, m.topology = counts, &c.policy
		m.topology.Nodes = topology.MaskOf(0, 1)
		for _, waits := range []bool{true, false} {
			if m.Wants(c.pod) {
				if err := m.Allocate(t.Context(), c.pod, never); err != nil {
					t.Fatal(err)
				}
			}
			m.Decided(c.pod, m.Refused(c.pod.UID) == nil, waits)
		}
		m.Forget(c.pod.UID)
		if got := fmt.Sprint(counts.pods, " ", counts.scopes); got != c.want {
			t.Errorf("%+v, pod %s: %s, want %s", c.policy, c.pod.Name, got, c.want)
		}
	}
}
