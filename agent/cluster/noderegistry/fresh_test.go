package noderegistry

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/agent/cluster/kube/fake"
)

// amounts returns a Node's capacity and allocatable amount of a resource; -1 for none.
func amounts(n *v1.Node, name v1.ResourceName) [2]int64 {
	out := [2]int64{-1, -1}
	for i, list := range []v1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
		if q, ok := list[name]; ok {
			out[i] = q.Value()
		}
	}
	return out
}

// A machine that takes over the Node object of another machine does not have its extended
// resources. What somebody sets afterwards stays.
func TestFreshMachineHasNoExtendedResources(t *testing.T) {
	for name, c := range map[string]struct {
		fresh, register bool
		want            int64
	}{
		"a fresh machine":                    {true, true, 0},
		"a machine that has registered":      {false, true, 8},
		"a machine that others register for": {true, false, 8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &someNode{t: t, api: fake.New(), facts: someFacts()}
				defer n.api.Close()
				n.facts.Fresh = c.fresh
				one := resource.MustParse("1")
				n.facts.Capacity["example.com/own"], n.facts.Allocatable["example.com/own"] = one, one
				theirs := v1.ResourceList{
					"example.com/gpu": resource.MustParse("8"), "example.com/own": resource.MustParse("8"),
					"kubernetes.io/batch": resource.MustParse("8"),
				}
				n.api.Put(fake.Nodes, &v1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "node"},
					Status:     v1.NodeStatus{Capacity: theirs, Allocatable: theirs.DeepCopy()},
				})
				cfg := config()
				cfg.Register = c.register
				n.start(cfg)
				defer func() { n.end() }()
				node := n.node(time.Second)
				for of, want := range map[v1.ResourceName]int64{
					"example.com/gpu": c.want, "example.com/own": 1, "kubernetes.io/batch": 8,
				} {
					if got := amounts(node, of); got != [2]int64{want, want} {
						t.Errorf("%s: %v, want %d", of, got, want)
					}
				}
				node.Status.Capacity["example.com/gpu"] = resource.MustParse("3")
				n.api.Put(fake.Nodes, node)
				if got := amounts(n.node(time.Minute), "example.com/gpu"); c.register && got != [2]int64{3, 3} {
					t.Errorf("set afterwards: %v, want 3", got)
				}
			})
		})
	}
}

// A machine that makes its Node object is not fresh any more.
func TestMachineThatRegistersIsNotFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &someNode{t: t, api: fake.New(), facts: someFacts()}
		defer n.api.Close()
		n.facts.Fresh = true
		n.start(config())
		defer func() { n.end() }()
		n.node(time.Second)
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.facts.Fresh {
			t.Error("the machine is fresh after it has registered")
		}
	})
}
