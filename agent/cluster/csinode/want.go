package csinode

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"github.com/berthd/berth/agent/volumes/csi"
)

// annotationNodeIDs has each driver's name for the node, as a JSON object.
const annotationNodeIDs = "csi.volume.kubernetes.io/nodeid"

// Want returns the CSINode of a node as it should be, and whether it differs from have, which is
// nil if there is none. The API server does not allow a change of a driver's entry. An entry that
// must change is first left out (again is then true), and added by the next write.
func Want(
	have *storagev1.CSINode, node *v1.Node, here []csi.Driver, gone []string,
) (want *storagev1.CSINode, changed, again bool) {
	want = &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	if have != nil {
		want = have.DeepCopy()
	} else if len(here) == 0 {
		return want, false, false
	}
	want.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	want.Spec.Drivers = slices.DeleteFunc(want.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		return slices.Contains(gone, d.Name)
	})
	for _, driver := range here {
		entry := entryOf(driver)
		at := slices.IndexFunc(want.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver.Name })
		switch {
		case at < 0:
			want.Spec.Drivers = append(want.Spec.Drivers, entry)
		case !equality.Semantic.DeepEqual(want.Spec.Drivers[at], entry):
			want.Spec.Drivers = slices.Delete(want.Spec.Drivers, at, at+1)
			again = true
		}
	}
	return want, have == nil || !equality.Semantic.DeepEqual(have, want), again
}

// entryOf returns a driver's entry in a CSINode.
func entryOf(d csi.Driver) storagev1.CSINodeDriver {
	entry := storagev1.CSINodeDriver{Name: d.Name, NodeID: d.NodeID, TopologyKeys: slices.Sorted(maps.Keys(d.Topology))}
	if d.MaxVolumes > 0 {
		count := int32(min(d.MaxVolumes, 1<<31-1))
		entry.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	return entry
}

// NodePatch returns a patch of the Node's annotation and labels, nil if nothing has to change. It
// returns an error if a driver's topology has labels that a node may not set on itself.
func NodePatch(node *v1.Node, here []csi.Driver, gone []string) ([]byte, error) {
	ids := map[string]string{}
	if text := node.Annotations[annotationNodeIDs]; text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil {
			ids = map[string]string{} // another client wrote it
		}
	}
	before := maps.Clone(ids)
	for _, name := range gone {
		delete(ids, name)
	}
	labels := map[string]any{}
	for _, d := range here {
		ids[d.Name] = d.NodeID
		for key, value := range d.Topology {
			if !allowed(key) {
				return nil, fmt.Errorf(
					"CSI driver %s has the topology key %s, which is no label that a node may give itself", d.Name, key)
			}
			if have, ok := node.Labels[key]; !ok || have != value {
				labels[key] = value
			}
		}
	}
	meta := map[string]any{}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	if !maps.Equal(before, ids) {
		var value any
		if len(ids) > 0 {
			text, err := json.Marshal(ids)
			if err != nil {
				return nil, err
			}
			value = string(text)
		}
		meta["annotations"] = map[string]any{annotationNodeIDs: value}
	}
	if len(meta) == 0 {
		return nil, nil
	}
	return json.Marshal(map[string]any{"metadata": meta})
}

// allowed reports whether NodeRestriction lets a node set this label on itself: it refuses only
// Kubernetes' labels that are not the kubelet's.
func allowed(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	ours := false
	for _, d := range []string{"kubernetes.io", "k8s.io"} {
		ours = ours || domain == d || strings.HasSuffix(domain, "."+d)
	}
	return !ours || kubeletapis.IsKubeletLabel(key)
}
