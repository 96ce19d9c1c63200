package claims

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// pv returns a volume of 1Gi, class "c", ReadWriteOnce, changed by each option.
func pv(name string, options ...func(*v1.PersistentVolume)) *v1.PersistentVolume {
	out := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			Capacity:         v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			StorageClassName: "c",
		},
	}
	for _, option := range options {
		option(out)
	}
	return out
}

func size(q string) func(*v1.PersistentVolume) {
	return func(p *v1.PersistentVolume) { p.Spec.Capacity[v1.ResourceStorage] = resource.MustParse(q) }
}

func class(name string) func(*v1.PersistentVolume) {
	return func(p *v1.PersistentVolume) { p.Spec.StorageClassName = name }
}

func claimRef(namespace, name, uid string) func(*v1.PersistentVolume) {
	return func(p *v1.PersistentVolume) {
		p.Spec.ClaimRef = &v1.ObjectReference{Namespace: namespace, Name: name, UID: types.UID(uid)}
	}
}

func onHost(name string) func(*v1.PersistentVolume) {
	return func(p *v1.PersistentVolume) {
		p.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{
				Key:      v1.LabelHostname,
				Operator: v1.NodeSelectorOpIn,
				Values:   []string{name},
			}},
		}}}}
	}
}

// pvc returns a claim for 500Mi of class "c", changed by each option.
func pvc(name string, options ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	out := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("c"),
			AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("500Mi")},
			},
		},
	}
	for _, option := range options {
		option(out)
	}
	return out
}

func wants(volume string) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = volume }
}

func TestChoose(t *testing.T) {
	block := func(p *v1.PersistentVolume) { p.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) }
	labelled := func(p *v1.PersistentVolume) { p.Labels = map[string]string{"disk": "fast"} }
	oldClass := func(p *v1.PersistentVolume) { p.Annotations = map[string]string{v1.BetaStorageClassAnnotation: "c"} }
	const none = "PVC is not bound: didn't find available persistent volumes to bind"
	for _, test := range []struct {
		name    string
		claim   *v1.PersistentVolumeClaim
		volumes []*v1.PersistentVolume
		bound   map[string]string
		want    string // a volume, or the error
	}{
		{"there is none", pvc("a"), nil, nil, none + ": there is none"},
		{"the only one", pvc("a"), []*v1.PersistentVolume{pv("x")}, nil, "x"},
		{
			"the smallest", pvc("a"),
			[]*v1.PersistentVolume{pv("x", size("3Gi")), pv("y", size("500Mi")), pv("z", size("2Gi"))},
			nil, "y",
		},
		{"of equals the first", pvc("a"), []*v1.PersistentVolume{pv("y"), pv("x")}, nil, "x"},
		{
			"each reason why not", pvc("a"),
			[]*v1.PersistentVolume{
				pv("s", size("1Mi")), pv("c1", class("d")), pv("c2", class("")), pv("b", block),
				pv("n", onHost("other")), pv("o", claimRef("ns", "b", "")),
			},
			nil,
			none +
				": 1 incompatible volumeMode, 1 of another claim, 1 of another node, 1 requested PV is too small, 2 " +
				"storageClassName does not match",
		},
		{
			"access modes",
			pvc("a", func(c *v1.PersistentVolumeClaim) {
				c.Spec.AccessModes = append(c.Spec.AccessModes, v1.ReadOnlyMany)
			}),
			[]*v1.PersistentVolume{pv("x")},
			nil, none + ": 1 incompatible accessMode",
		},
		{
			"no class wants none", pvc("a", func(c *v1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil }),
			[]*v1.PersistentVolume{pv("x"), pv("y", class(""))},
			nil, "y",
		},
		{"the annotation of old", pvc("a"), []*v1.PersistentVolume{pv("x", class("d"), oldClass)}, nil, "x"},
		{"selector", pvc("a", func(c *v1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "fast"}}
		}), []*v1.PersistentVolume{pv("x"), pv("y", labelled)}, nil, "y"},
		{
			"attributes class",
			pvc("a", func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr.To("gold") }),
			[]*v1.PersistentVolume{pv("x")},
			nil, none + ": 1 volumeAttributesClassName does not match",
		},
		{"on this node", pvc("a"), []*v1.PersistentVolume{pv("x", onHost("other")), pv("y", onHost("here"))}, nil, "y"},
		{
			"made for it, of whatever class", pvc("a"),
			[]*v1.PersistentVolume{pv("x"), pv("y", size("9Gi"), class("d"), claimRef("ns", "a", ""))},
			nil, "y",
		},
		{
			"made for it, but too small", pvc("a"),
			[]*v1.PersistentVolume{pv("y", size("1Mi"), claimRef("ns", "a", ""))},
			nil, none + ": 1 requested PV is too small",
		},
		{
			"made for one of another namespace", pvc("a"),
			[]*v1.PersistentVolume{pv("y", claimRef("other", "a", ""))},
			nil, none + ": 1 of another claim",
		},
		{
			"made for one of another UID", pvc("a", func(c *v1.PersistentVolumeClaim) { c.UID = "1" }),
			[]*v1.PersistentVolume{pv("y", claimRef("ns", "a", "2"))},
			nil, none + ": 1 of another claim",
		},

		{"by name", pvc("a", wants("y")), []*v1.PersistentVolume{pv("x"), pv("y")}, nil, "y"},
		{
			"by name, not there", pvc("a", wants("z")),
			[]*v1.PersistentVolume{pv("x")},
			nil,
			`PVC is not bound: persistentvolume "z" not found`,
		},
		{
			"by name, another's by its word", pvc("a", wants("x")),
			[]*v1.PersistentVolume{pv("x", claimRef("ns", "b", ""))},
			nil, `PVC is not bound: volume "x" already bound to a different claim`,
		},
		{
			"by name, another's by binding", pvc("a", wants("x")),
			[]*v1.PersistentVolume{pv("x")},
			map[string]string{"x": "ns/there"},
			`PVC is not bound: volume "x" already bound to a different claim`,
		},
		{
			"by name, left behind", pvc("a", wants("x")),
			[]*v1.PersistentVolume{pv("x")},
			map[string]string{"x": "ns/gone"},
			"x",
		},
		{
			"by name, too small", pvc("a", wants("x")),
			[]*v1.PersistentVolume{pv("x", size("1Mi"))},
			nil,
			`PVC is not bound: Cannot bind to requested volume "x": requested PV is too small`,
		},
		{
			"by name, of another class", pvc("a", wants("x")),
			[]*v1.PersistentVolume{pv("x", class("d"))},
			nil,
			`PVC is not bound: Cannot bind to requested volume "x": storageClassName does not match`,
		},
		{
			"by name, elsewhere", pvc("a", wants("x")),
			[]*v1.PersistentVolume{pv("x", onHost("other"))},
			nil,
			`node(s) didn't match PersistentVolume's node affinity: volume "x"`,
		},

		{
			"bound before", pvc("a"),
			[]*v1.PersistentVolume{pv("w"), pv("x", size("5Gi"))},
			map[string]string{"x": "ns/a"},
			"x",
		},
		{
			"bound before, now too small", pvc("a"),
			[]*v1.PersistentVolume{pv("w"), pv("x", size("1Mi"))},
			map[string]string{"x": "ns/a"},
			"x",
		},
		{
			"bound before, names another", pvc("a", wants("w")),
			[]*v1.PersistentVolume{pv("w"), pv("x")},
			map[string]string{"x": "ns/a"},
			"w",
		},
		{
			"bound before, volume gone", pvc("a"),
			[]*v1.PersistentVolume{pv("w")},
			map[string]string{"x": "ns/a"},
			`bound claim has lost its PersistentVolume: persistentvolume "x" not found`,
		},
		{
			"bound before, volume given away", pvc("a"),
			[]*v1.PersistentVolume{pv("w"), pv("x", claimRef("ns", "b", ""))},
			map[string]string{"x": "ns/a"},
			`bound claim has lost its PersistentVolume: volume "x" already bound`,
		},
		{
			"bound before, node renamed", pvc("a"),
			[]*v1.PersistentVolume{pv("x", onHost("other"))},
			map[string]string{"x": "ns/a"},
			"node(s) didn't match PersistentVolume's node affinity",
		},
		{
			"another is bound", pvc("a"),
			[]*v1.PersistentVolume{pv("x")},
			map[string]string{"x": "ns/there"},
			none + ": 1 of another claim",
		},
		{
			"what a claim left behind is not for all", pvc("a"),
			[]*v1.PersistentVolume{pv("x")},
			map[string]string{"x": "ns/gone"},
			none + ": 1 of another claim",
		},
		{
			"what it has left itself neither", pvc("a"),
			[]*v1.PersistentVolume{pv("x")},
			map[string]string{"x": ""},
			none + ": 1 of another claim",
		},
		{
			"left behind, but made for it", pvc("a"),
			[]*v1.PersistentVolume{pv("x", claimRef("ns", "a", ""))},
			map[string]string{"x": "ns/gone"},
			"x",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Choose(Input{
				Claim:      test.claim,
				Volumes:    test.volumes,
				Bound:      test.bound,
				NodeLabels: map[string]string{v1.LabelHostname: "here"},
				Exists:     func(claim string) bool { return claim != "ns/gone" && claim != "" },
			})
			switch {
			case err != nil && !strings.HasPrefix(err.Error(), test.want):
				t.Errorf("error %q, want %q", err, test.want)
			case err == nil && got.Name != test.want:
				t.Errorf("volume %q, want %q", got.Name, test.want)
			}
		})
	}
}
