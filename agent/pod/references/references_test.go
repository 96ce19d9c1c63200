package references

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestReferences(t *testing.T) {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns"},
		Spec: v1.PodSpec{
			InitContainers:      []v1.Container{{Name: "init"}},
			EphemeralContainers: []v1.EphemeralContainer{{}},
			Volumes: []v1.Volume{
				{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
					LocalObjectReference: v1.LocalObjectReference{Name: "both"},
				}}},
				{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "both"}}},
			},
		},
	}
	env := func(name string, optional *bool) v1.EnvVar {
		return v1.EnvVar{ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
			LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: optional,
		}}}
	}
	pod.Spec.InitContainers[0].Env = []v1.EnvVar{env("both", ptr.To(true)), env("maybe", ptr.To(true)), {Name: "plain"}}
	pod.Spec.EphemeralContainers[0].Env = []v1.EnvVar{env("late", ptr.To(false)), env("maybe", ptr.To(true))}
	pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "pull"}, {}}
	want := []Reference{
		{KindConfigMap, "ns", "both", false},
		{KindConfigMap, "ns", "maybe", true},
		{KindConfigMap, "ns", "late", false},
		{KindSecret, "ns", "both", false},
		{KindSecret, "ns", "pull", true},
	}
	if got := Of(pod); !slices.Equal(got, want) {
		t.Errorf("Of() = %+v\nwant %+v", got, want)
	}
}

// TestReferencesAreComplete fills a pod's spec with everything the API knows, finds in it by the
// names of types and fields whatever refers to a ConfigMap, a Secret or a claim, and wants each of
// them (CVE-2023-2728, CVE-2024-3177). A new field of the API fails it until Of knows the field.
func TestReferencesAreComplete(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	f := filler{want: map[string]string{}}
	f.fill(reflect.ValueOf(&pod.Spec).Elem(), "spec", "")
	if len(f.want) < 20 {
		t.Fatalf("found only %d references: %v", len(f.want), f.want)
	}
	got := map[string]string{}
	for _, ref := range Of(pod) {
		got[ref.Name] = ref.Kind
	}
	for path, kind := range f.want {
		if got[path] != kind {
			t.Errorf("Of() does not name the %s at %s", kind, path)
		}
		delete(got, path)
	}
	for path, kind := range got {
		t.Errorf("Of() names a %s at %s, where there is none", kind, path)
	}
}

// filler sets every string to its own path, and notes the paths of those that name a ConfigMap, a
// Secret or a claim.
type filler struct{ want map[string]string }

func (f *filler) fill(v reflect.Value, path, owner string) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), path, owner)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0), path+"[0]", owner)
	case reflect.String:
		v.SetString(path)
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if !field.IsExported() || !v.Field(i).CanSet() {
				continue
			}
			below := fmt.Sprintf("%s.%s", path, field.Name)
			f.fill(v.Field(i), below, v.Type().Name())
			if kind := referenceKind(field, v.Type(), owner, path); kind != "" {
				f.want[below] = kind
			}
		}
	}
}

// referenceKind says which kind of object a string field names: the name in a LocalObjectReference,
// or a field called SecretName or the like.
func referenceKind(field reflect.StructField, in reflect.Type, owner, path string) string {
	if field.Type.Kind() != reflect.String {
		return ""
	}
	switch {
	case field.Name == "ClaimName":
		return KindClaim
	case in.Name() == "LocalObjectReference" && strings.Contains(owner, "ConfigMap"),
		strings.HasPrefix(field.Name, "ConfigMap"):
		return KindConfigMap
	// a path on the host
	case in.Name() == "LocalObjectReference",
		strings.HasPrefix(field.Name, "Secret") && field.Name != "SecretNamespace" && field.Name != "SecretFile":
		return KindSecret
	case in.Name() == "ObjectReference" || in.Name() == "SecretReference":
		return "unknown reference at " + path
	}
	return ""
}
