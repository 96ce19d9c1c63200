package csinode

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/agent/volumes/csi"
)

func someNode() *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "new"}}
}

// names returns a CSINode's drivers as text.
func names(n *storagev1.CSINode) string {
	var out []string
	for _, d := range n.Spec.Drivers {
		out = append(out, d.Name+"="+d.NodeID)
	}
	return strings.Join(out, ",")
}

func TestWant(t *testing.T) {
	a, b := csi.Driver{Name: "a", NodeID: "1", MaxVolumes: 3, Topology: map[string]string{"z": "1", "r": "2"}},
		csi.Driver{Name: "b", NodeID: "2"}
	first, changed, again := Want(nil, someNode(), []csi.Driver{a}, nil)
	if names(first) != "a=1" || !changed || again || first.OwnerReferences[0].UID != "new" ||
		*first.Spec.Drivers[0].Allocatable.Count != 3 ||
		strings.Join(first.Spec.Drivers[0].TopologyKeys, ",") != "r,z" {
		t.Errorf("%+v, %v, %v", first, changed, again)
	}
	if _, changed, _ := Want(nil, someNode(), nil, []string{"a"}); changed {
		t.Error("one is made for no driver")
	}
	if _, changed, again := Want(first, someNode(), []csi.Driver{a}, nil); changed || again {
		t.Error("what is right is changed")
	}
	// A driver that this agent has never seen stays, and a driver that was removed is removed.
	first.Spec.Drivers = append(first.Spec.Drivers, storagev1.CSINodeDriver{Name: "other", NodeID: "9"})
	if got, changed, _ := Want(first, someNode(), []csi.Driver{b}, []string{"a"}); names(got) != "other=9,b=2" ||
		!changed {
		t.Errorf("%s, %v", names(got), changed)
	}
	// No entry may change: it is removed first, and then added again.
	moved := a
	moved.NodeID = "7"
	got, changed, again := Want(first, someNode(), []csi.Driver{moved}, nil)
	if names(got) != "other=9" || !changed || !again {
		t.Errorf("%s, %v, %v", names(got), changed, again)
	}
	if got, _, again = Want(got, someNode(), []csi.Driver{moved}, nil); names(got) != "other=9,a=7" || again {
		t.Errorf("%s, %v", names(got), again)
	}
	old := first.DeepCopy()
	old.OwnerReferences[0].UID = "old"
	if got, changed, _ := Want(old, someNode(), []csi.Driver{a}, nil); !changed || got.OwnerReferences[0].UID != "new" {
		t.Errorf("of a new node: %+v", got)
	}
}

func TestNodePatch(t *testing.T) {
	a := csi.Driver{
		Name:     "a",
		NodeID:   "1",
		Topology: map[string]string{"example.com/zone": "z", "topology.kubernetes.io/zone": "z"},
	}
	for _, tc := range []struct {
		name        string
		annotation  string
		here        []csi.Driver
		gone        []string
		labels      map[string]string
		want, wrong string
	}{
		{name: "nothing"},
		{
			name: "new", here: []csi.Driver{a},
			want: `{"metadata":{"annotations":{"csi.volume.kubernetes.io/` +
				`nodeid":"{\"a\":\"1\"}"},"labels":{"example.com/zone":"z","topology.kubernetes.io/zone":"z"}}}`,
		},
		{name: "as it is", annotation: `{"a":"1"}`, here: []csi.Driver{a}, labels: a.Topology},
		{
			name:       "gone",
			annotation: `{"a":"1"}`,
			gone:       []string{"a"},
			want:       `{"metadata":{"annotations":{"csi.volume.kubernetes.io/nodeid":null}}}`,
		},
		{
			name:       "damaged",
			annotation: `{`,
			here:       []csi.Driver{a},
			labels:     a.Topology,
			want:       `{"metadata":{"annotations":{"csi.volume.kubernetes.io/nodeid":"{\"a\":\"1\"}"}}}`,
		},
		{
			name: "a label that is not the node's",
			here: []csi.Driver{{
				Name:     "bad",
				NodeID:   "1",
				Topology: map[string]string{"node-role.kubernetes.io/master": ""},
			}},
			wrong: "CSI driver bad has the topology key node-role.kubernetes.io/master, which is no label that " +
				"a node may give itself",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := someNode()
			node.Labels = tc.labels
			if tc.annotation != "" {
				node.Annotations = map[string]string{annotationNodeIDs: tc.annotation}
			}
			got, err := NodePatch(node, tc.here, tc.gone)
			if string(got) != tc.want || (err == nil) != (tc.wrong == "") || err != nil && err.Error() != tc.wrong {
				t.Errorf("%s, %v, want %s", got, err, tc.want)
			}
		})
	}
}
