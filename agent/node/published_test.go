package node

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berthd/berth/configs"
)

// cards are the devices of a plugin that was given up.
type cards struct{ Devices }

func (cards) Counted(object v1.ResourceList) v1.ResourceList {
	return v1.ResourceList{"example.com/card": resource.MustParse("0"), "example.com/rest": object["example.com/rest"]}
}

// Extended resources count on a node that has a Node object.
func TestCountable(t *testing.T) {
	n := &Node{cfg: &configs.Config{}, capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}}
	n.SetDevices(cards{})
	if got := n.Countable(); len(got) != 1 || got.Cpu().Value() != 4 {
		t.Errorf("without a Node object: %v", got)
	}
	n.SetObject(&v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{
		"example.com/rest": resource.MustParse("3"), v1.ResourceCPU: resource.MustParse("64"),
	}}})
	got := n.Countable()
	card, rest := got["example.com/card"], got["example.com/rest"]
	if len(got) != 3 || got.Cpu().Value() != 4 || card.Value() != 0 || rest.Value() != 3 {
		t.Errorf("%v", got)
	}
	if got := n.Allocatable(); len(got) != 1 {
		t.Errorf("containers are told %v", got)
	}
}
