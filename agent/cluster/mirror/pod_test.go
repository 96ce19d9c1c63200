package mirror

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/internal/pods"
)

var node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-uid"}}

func static(name, hash string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: "uid-" + "x", ResourceVersion: "", Labels: map[string]string{"a": "b"},
			Annotations: map[string]string{
				pods.AnnotationHash:   hash,
				pods.AnnotationSource: "file",
				pods.AnnotationSeen:   "then",
			},
		},
		Spec: v1.PodSpec{NodeName: "node", Containers: []v1.Container{{Name: "c"}}},
	}
}

func TestOf(t *testing.T) {
	pod := static("web", "h1")
	before := pod.DeepCopy()
	m := Of(pod, node)
	if m.UID != "" || m.Name != "web" || m.Labels["a"] != "b" || m.Spec.NodeName != "node" ||
		m.Annotations[v1.MirrorPodAnnotationKey] != "h1" ||
		m.Annotations[pods.AnnotationSeen] != "then" || m.Annotations[AnnotationOmits] != "" {
		t.Errorf("%+v", m)
	}
	// NodeRestriction lets a node set only this.
	if o := m.OwnerReferences; len(o) != 1 || o[0].Kind != "Node" || o[0].Name != "node" || o[0].UID != "node-uid" ||
		!*o[0].Controller || o[0].BlockOwnerDeletion != nil {
		t.Errorf("owners %+v", o)
	}
	if !Shows(m, pod) || Shows(m, static("web", "h2")) {
		t.Error("versions are not told apart")
	}
	now := metav1.Now()
	m.DeletionTimestamp = &now
	if Shows(m, pod) || fmt.Sprint(pod) != fmt.Sprint(before) {
		t.Error("a leaving mirror shows a pod, or the pod was changed")
	}
}

// The API server refuses a mirror that refers to API objects.
func TestMirrorsReferToNothing(t *testing.T) {
	pod := static("web", "h")
	ref := v1.LocalObjectReference{Name: "x"}
	pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{ref}
	pod.Spec.RuntimeClassName, pod.Spec.PriorityClassName, pod.Spec.Priority = ptr.To("x"), "x", ptr.To[int32](5)
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{
		{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e"}},
	}
	for _, s := range []v1.VolumeSource{
		{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: ref}},
		{Secret: &v1.SecretVolumeSource{SecretName: "x"}},
		{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}},
		{
			Projected: &v1.ProjectedVolumeSource{
				Sources: []v1.VolumeProjection{{Secret: &v1.SecretProjection{LocalObjectReference: ref}}},
			},
		},
		{HostPath: &v1.HostPathVolumeSource{Path: "/x"}},
		{CSI: &v1.CSIVolumeSource{Driver: "x", NodePublishSecretRef: &ref, VolumeAttributes: map[string]string{"a": "b"}}},
	} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "v", VolumeSource: s})
	}
	c := v1.Container{
		Name: "i", EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref}}},
		Env: []v1.EnvVar{
			{Name: "S", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: ref}}},
			{
				Name:      "C",
				ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: ref}},
			},
			{Name: "PLAIN", Value: "1"},
		},
	}
	pod.Spec.InitContainers, pod.Spec.Containers = []v1.Container{c}, []v1.Container{c}
	m := Of(pod, node)
	for r := range source.References(&m.Spec) {
		t.Errorf("it refers to %s %s by %s", r.Kind, r.Name, r.Path)
	}
	if m.Spec.Volumes[4].HostPath == nil || len(m.Spec.Containers[0].Env) != 1 || m.Spec.Priority != nil ||
		m.Spec.EphemeralContainers != nil {
		t.Errorf("%+v", m.Spec)
	}
	for _, path := range []string{
		"spec.volumes[0].configMap", "spec.volumes[3].projected", "spec.volumes[5].csi", "spec.containers[0].env[S]",
		"spec.initContainers[0].envFrom", "spec.imagePullSecrets",
	} {
		if !strings.Contains(m.Annotations[AnnotationOmits], path) {
			t.Errorf("it does not say that it leaves out %s: %s", path, m.Annotations[AnnotationOmits])
		}
	}
	if pod.Spec.Volumes[0].ConfigMap == nil || len(pod.Spec.Containers[0].Env) != 3 {
		t.Error("the static pod was changed")
	}
	pod.Spec.PriorityClassName = "system-node-critical"
	if m := Of(pod, node); m.Spec.PriorityClassName == "" || m.Spec.Priority == nil {
		t.Error("a class that every cluster has is left out")
	}
}

func TestChanges(t *testing.T) {
	pods := map[string]*v1.Pod{"ns/web": static("web", "h2")}
	mirrorOf := func(hash string) map[string]*v1.Pod {
		return map[string]*v1.Pod{"ns/web": Of(static("web", hash), node)}
	}
	for name, tc := range map[string]struct {
		static, mirrors map[string]*v1.Pod
		known           bool
		node            *v1.Node
		want            string
	}{
		"none":                              {pods, nil, true, node, "create ns/web"},
		"as it should be":                   {pods, mirrorOf("h2"), true, node, ""},
		"an older version":                  {pods, mirrorOf("h1"), true, node, "remove create ns/web"},
		"without a node":                    {pods, nil, true, nil, ""},
		"an older version without a node":   {pods, mirrorOf("h1"), true, nil, ""},
		"nobody's":                          {nil, mirrorOf("h1"), true, node, "remove ns/web"},
		"perhaps nobody's":                  {nil, mirrorOf("h1"), false, node, ""},
		"nobody's without a node":           {nil, mirrorOf("h1"), true, nil, "remove ns/web"},
		"shown before all manifests are in": {pods, nil, false, node, "create ns/web"},
	} {
		got := ""
		todo := changes(tc.static, tc.mirrors, tc.known, tc.node)
		for _, full := range slices.Sorted(maps.Keys(todo)) {
			if todo[full].remove != nil {
				got += "remove "
			}
			if todo[full].create != nil {
				got += "create "
			}
			got += full
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
