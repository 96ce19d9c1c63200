package allocation

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berthd/berth/agent/node/podlevel"
	"github.com/berthd/berth/agent/node/topology"
)

// wholeShare is a share that gives pods their pieces as a whole.
type wholeShare struct{ fakeShare }

func (s wholeShare) AllocatePod(_ context.Context, hint topology.Hint) error {
	*s.got = append(*s.got, fmt.Sprintf("whole%v", hint.Nodes.Nodes()))
	return s.fails
}

// own makes a pod with resources of its own.
func own() *v1.Pod {
	list := v1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")}
	return &v1.Pod{Spec: v1.PodSpec{
		Resources:  &v1.ResourceRequirements{Requests: list, Limits: list},
		Containers: []v1.Container{{Name: "app"}, {Name: "other"}},
	}}
}

// Under the scope pod, a pod with resources of its own gets those pieces as a whole that it can
// have so, and then each container gets the others. What fails is told in the kubelet's words.
func TestShareWhole(t *testing.T) {
	burstable := own()
	burstable.Spec.Resources.Limits = nil
	one, other := [][]topology.Hint{{hint(0)}}, [][]topology.Hint{{hint(1)}}
	for name, c := range map[string]struct {
		rules podlevel.Rules
		pod   *v1.Pod
		nodes [][]topology.Hint
		fails error
		want  string
	}{
		"whole":            {podlevel.Rules{Managed: true, ByPod: true}, own(), one, nil, "whole[0] app[0] other[0]"},
		"without the gate": {podlevel.Rules{ByPod: true}, own(), one, nil, "app[0] app[0] other[0] other[0]"},
		"Burstable": {
			podlevel.Rules{Managed: true, ByPod: true}, burstable, one, nil, "app[0] app[0] other[0] other[0]",
		},
		"by container": {podlevel.Rules{Managed: true}, own(), one, nil, "app[0] app[0] other[0] other[0]"},
		"no pool": {
			podlevel.Rules{Managed: true, ByPod: true},
			own(), one, &podlevel.EmptyPool{},
			"whole[0] EmptyPodSharedPoolError pod rejected, ",
		},
		"apart": {
			podlevel.Rules{Managed: true, ByPod: true}, own(), other, nil, "TopologyAffinityError Pod Scope pod with " +
				"pod-level resources failed admission under pod-scope topology manager",
		},
		"apart, by container": {
			podlevel.Rules{Managed: true}, own(), other, nil, "TopologyAffinityError Pod Scope pod with pod-level resources " +
				"failed admission with a container-level topology manager",
		},
		"apart, without the gate": {
			podlevel.Rules{ByPod: true},
			own(), other, nil,
			"TopologyAffinityError Resources cannot be allocated with Topology locality",
		},
	} {
		m, _ := newManager(t, nil)
		m.rules = c.rules
		m.topology = &topology.Policy{Name: topology.Restricted, ByPod: c.rules.ByPod, Nodes: topology.MaskOf(0, 1)}
		var got []string
		err := m.share(t.Context(), c.pod, []share{
			fakeShare{one, one, nil, &got}, wholeShare{fakeShare{c.nodes, c.nodes, c.fails, &got}},
		})
		for i := range got { // only the nodes matter here
			got[i], _, _ = strings.Cut(got[i], "true")
		}
		if r := rejection(err); r != nil {
			got = append(got, r.Reason, r.Message)
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}

// The feature gate and the topology manager's scope decide who is looked at as a whole.
func TestRules(t *testing.T) {
	off, _ := newManager(t, nil)
	on, _ := newManager(t, map[string]bool{"PodLevelResourceManagers": true})
	if off.rules.Managed || !on.rules.Managed || on.rules.ByPod {
		t.Errorf("off %+v, on %+v", off.rules, on.rules)
	}
}
