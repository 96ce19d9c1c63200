package claims

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Input is what a claim's volume is chosen from.
type Input struct {
	Claim *v1.PersistentVolumeClaim
	// Volumes are all volumes of the node.
	Volumes []*v1.PersistentVolume
	// Bound says which claim, as namespace/name, has each volume. The name is empty if the claim
	// has left the volume.
	Bound map[string]string
	// Exists reports whether a manifest still has a claim.
	Exists func(claim string) bool
	// NodeLabels are the node's labels, for the volumes' node affinity.
	NodeLabels map[string]string
}

// Choose returns the volume of a claim: the volume that it is bound to, the volume that it names or
// that names it, or else the smallest volume that fits, as the API documents claims. The error says
// why the claim has no volume yet, with upstream's words if there are any.
func Choose(in Input) (*v1.PersistentVolume, error) {
	if name := in.Claim.Spec.VolumeName; name != "" {
		return in.named(name)
	}
	for _, name := range slices.Sorted(maps.Keys(in.Bound)) {
		if in.Bound[name] == Key(in.Claim) {
			return in.kept(name)
		}
	}
	return in.matched()
}

// Key names a claim: namespace/name.
func Key(claim *v1.PersistentVolumeClaim) string { return claim.Namespace + "/" + claim.Name }

// named returns the volume that the claim asks for by name.
func (in *Input) named(name string) (*v1.PersistentVolume, error) {
	volume := in.find(name)
	switch {
	case volume == nil:
		return nil, fmt.Errorf("PVC is not bound: persistentvolume %q not found", name)
	case in.taken(volume):
		return nil, fmt.Errorf("PVC is not bound: volume %q already bound to a different claim", name)
	}
	if why := in.mismatch(volume); why != "" {
		return nil, fmt.Errorf("PVC is not bound: Cannot bind to requested volume %q: %s", name, why)
	}
	return in.here(volume)
}

// kept returns the volume that the claim was bound to before. Later changes of size and class in
// the manifests do not matter.
func (in *Input) kept(name string) (*v1.PersistentVolume, error) {
	volume := in.find(name)
	switch {
	case volume == nil:
		return nil, fmt.Errorf("bound claim has lost its PersistentVolume: persistentvolume %q not found; to give the "+
			"claim another volume, name it in spec.volumeName", name)
	case volume.Spec.ClaimRef != nil && !refersTo(volume.Spec.ClaimRef, in.Claim):
		return nil, fmt.Errorf(
			"bound claim has lost its PersistentVolume: volume %q already bound to a different claim", name)
	}
	return in.here(volume)
}

// here returns the volume if it can be used on this node.
func (in *Input) here(volume *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	if !in.onNode(volume) {
		return nil, fmt.Errorf("node(s) didn't match PersistentVolume's node affinity: volume %q", volume.Name)
	}
	return volume, nil
}

// matched returns the volume that names the claim, or the smallest of those that fit. If two have
// the same size, the first by name wins.
func (in *Input) matched() (*v1.PersistentVolume, error) {
	selector := labels.Everything()
	if in.Claim.Spec.Selector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(in.Claim.Spec.Selector); err != nil {
			return nil, fmt.Errorf("PVC is not bound: spec.selector: %w", err)
		}
	}
	var fitting []*v1.PersistentVolume
	passed := map[string]int{}
	for _, volume := range in.Volumes {
		why := in.unfit(volume, selector)
		switch {
		case why != "":
			passed[why]++
		case volume.Spec.ClaimRef != nil:
			return volume, nil // made for this claim
		default:
			fitting = append(fitting, volume)
		}
	}
	if len(fitting) == 0 {
		return nil, fmt.Errorf("PVC is not bound: didn't find available persistent volumes to bind%s", count(passed))
	}
	return slices.MinFunc(fitting, func(a, b *v1.PersistentVolume) int {
		return cmp.Or(a.Spec.Capacity.Storage().Cmp(*b.Spec.Capacity.Storage()), strings.Compare(a.Name, b.Name))
	}), nil
}

// unfit says why a volume is not for the claim; empty if it is.
func (in *Input) unfit(volume *v1.PersistentVolume, selector labels.Selector) string {
	_, released := in.Bound[volume.Name]
	mine := volume.Spec.ClaimRef != nil && refersTo(volume.Spec.ClaimRef, in.Claim)
	switch {
	case in.taken(volume), released && !mine:
		// What a claim left behind is its data. Only a claim that names the volume, or that the
		// volume names, gets it.
		return "of another claim"
	case mine && modeOf(volume.Spec.VolumeMode) != modeOf(in.Claim.Spec.VolumeMode):
		return "incompatible volumeMode"
	case mine && volume.Spec.Capacity.Storage().Cmp(*in.Claim.Spec.Resources.Requests.Storage()) < 0:
		return "requested PV is too small"
	case !in.onNode(volume):
		return "of another node"
	case mine:
		return ""
	case !selector.Matches(labels.Set(volume.Labels)):
		return "not selected"
	}
	return in.mismatch(volume)
}

// mismatch says in which property a volume differs from what the claim wants, in upstream's words.
func (in *Input) mismatch(volume *v1.PersistentVolume) string {
	claim := &in.Claim.Spec
	switch {
	case volume.Spec.Capacity.Storage().Cmp(*claim.Resources.Requests.Storage()) < 0:
		return "requested PV is too small"
	case classOf(in.Claim.Annotations, claim.StorageClassName) != classOf(volume.Annotations,
		&volume.Spec.StorageClassName):
		return "storageClassName does not match"
	case value(claim.VolumeAttributesClassName) != value(volume.Spec.VolumeAttributesClassName):
		return "volumeAttributesClassName does not match"
	case modeOf(claim.VolumeMode) != modeOf(volume.Spec.VolumeMode):
		return "incompatible volumeMode"
	}
	for _, mode := range claim.AccessModes {
		if !slices.Contains(volume.Spec.AccessModes, mode) {
			return "incompatible accessMode"
		}
	}
	return ""
}

// taken reports whether a volume is another claim's: it names another claim, or another claim that
// still exists is bound to it.
func (in *Input) taken(volume *v1.PersistentVolume) bool {
	if ref := volume.Spec.ClaimRef; ref != nil {
		return !refersTo(ref, in.Claim)
	}
	owner, bound := in.Bound[volume.Name]
	return bound && owner != Key(in.Claim) && in.Exists(owner)
}

// onNode reports whether the volume's node affinity allows this node. An affinity that is invalid
// allows no node.
func (in *Input) onNode(volume *v1.PersistentVolume) bool {
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return true
	}
	selector, err := nodeaffinity.NewNodeSelector(volume.Spec.NodeAffinity.Required)
	return err == nil && selector.Match(&v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: in.NodeLabels}})
}

func (in *Input) find(name string) *v1.PersistentVolume {
	for _, volume := range in.Volumes {
		if volume.Name == name {
			return volume
		}
	}
	return nil
}

// refersTo reports whether a volume's claimRef means the claim. Local claims have a UID only if
// their manifest has one.
func refersTo(ref *v1.ObjectReference, claim *v1.PersistentVolumeClaim) bool {
	return ref.Name == claim.Name && ref.Namespace == claim.Namespace &&
		(ref.UID == "" || claim.UID == "" || ref.UID == claim.UID)
}

// classOf returns a storage class. The old annotation counts before the field.
func classOf(annotations map[string]string, class *string) string {
	if old, ok := annotations[v1.BetaStorageClassAnnotation]; ok {
		return old
	}
	return value(class)
}

func modeOf(mode *v1.PersistentVolumeMode) v1.PersistentVolumeMode {
	if mode == nil {
		return v1.PersistentVolumeFilesystem
	}
	return *mode
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// count writes how many volumes were left out for each reason.
func count(passed map[string]int) string {
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(passed)) {
		parts = append(parts, fmt.Sprintf("%d %s", passed[why], why))
	}
	if len(parts) == 0 {
		return ": there is none"
	}
	return ": " + strings.Join(parts, ", ")
}
