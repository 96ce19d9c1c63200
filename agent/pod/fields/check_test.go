package fields

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// using returns a pod that sets one path and nothing else.
func using(path string) *v1.Pod {
	pod := &v1.Pod{}
	value, at := reflect.ValueOf(&pod.ObjectMeta), "metadata"
	if within(path, "spec") {
		value, at = reflect.ValueOf(&pod.Spec), "spec"
	}
	set(value.Elem(), at, path)
	return pod
}

// set gives the value, which is at the path at, something at the path wanted.
func set(value reflect.Value, at, wanted string) {
	t := value.Type()
	switch {
	case t.Kind() == reflect.Pointer:
		value.Set(reflect.New(t.Elem()))
		set(value.Elem(), at, wanted)
	case isList(t):
		value.Set(reflect.MakeSlice(t, 1, 1))
		set(value.Index(0), at+"[*]", wanted)
	case isStruct(t):
		for i := range t.NumField() {
			name, inline := jsonName(t.Field(i))
			if inline {
				set(value.Field(i), at, wanted)
			} else if below := at + "." + name; within(wanted, below) {
				set(value.Field(i), below, wanted)
			}
		}
	case t.Kind() == reflect.Map:
		key := strings.TrimSuffix(strings.TrimPrefix(wanted, at+"["), "]")
		if wanted == at {
			key = string(v1.ResourceCPU)
		}
		value.Set(reflect.MakeMap(t))
		element := reflect.New(t.Elem()).Elem()
		scalar(element)
		value.SetMapIndex(reflect.ValueOf(strings.Replace(key, "*", "some", 1)).Convert(t.Key()), element)
	default:
		scalar(value)
	}
}

// scalar gives a value something that is not its zero value.
func scalar(value reflect.Value) {
	switch value.Interface().(type) {
	case resource.Quantity:
		value.Set(reflect.ValueOf(resource.MustParse("1")))
		return
	case intstr.IntOrString:
		value.Set(reflect.ValueOf(intstr.FromInt32(1)))
		return
	case metav1.Time:
		value.Set(reflect.ValueOf(metav1.NewTime(time.Unix(1, 0))))
		return
	case metav1.FieldsV1:
		value.Set(reflect.ValueOf(*metav1.NewFieldsV1("{}")))
		return
	}
	switch value.Kind() {
	case reflect.String:
		value.SetString("some")
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Slice:
		value.SetBytes([]byte("some"))
	default:
		value.SetInt(1)
	}
}

// found checks that each field of the mark gives a pod exactly one finding: with that mark, about
// the field or something that it is a part of.
func found(t *testing.T, mark Mark) {
	n := 0
	for _, f := range All() {
		if !f.leaf || f.Mark != mark {
			continue
		}
		n++
		findings := Check(using(f.Path))
		if len(findings) != 1 || findings[0].Mark != mark || findings[0].Reason != f.Condition {
			t.Errorf("a pod that sets %s has the findings %+v", f.Path, findings)
			continue
		}
		generic := strings.ReplaceAll(findings[0].Path, "[0]", "[*]")
		generic = strings.ReplaceAll(strings.ReplaceAll(generic, "some", ""), "*", "")
		if !within(strings.ReplaceAll(f.Path, "*", ""), generic) {
			t.Errorf("a pod that sets %s has a finding about %s", f.Path, findings[0].Path)
		}
	}
	if n == 0 {
		t.Errorf("no field is marked %q", mark)
	}
}

func TestEveryFieldWithoutEffectIsToldOf(t *testing.T) { found(t, NoEffect) }

func TestEveryRefusedFieldIsRefused(t *testing.T) { found(t, Refused) }

func TestFieldsThatWorkAreNotFound(t *testing.T) {
	for _, f := range All() {
		if f.leaf && (f.Mark == Works || f.Mark == WorksWhere) {
			pod := using(f.Path)
			if findings := Check(pod); len(findings) != 0 {
				t.Errorf("a pod that sets %s has the findings %+v", f.Path, findings)
			}
		}
	}
}

func TestFindings(t *testing.T) {
	var no bool
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Annotations: map[string]string{"note": "x", v1.SeccompPodAnnotationKey: "unconfined"},
		},
		Spec: v1.PodSpec{
			SchedulerName: v1.DefaultSchedulerName, AutomountServiceAccountToken: &no,
			Tolerations: []v1.Toleration{
				{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}, {Key: "disk"},
			},
			Containers: []v1.Container{
				{Name: "main", Image: "x"},
				{Resources: v1.ResourceRequirements{Limits: v1.ResourceList{
					"cpu": resource.MustParse("1"), "example.com/gpu": resource.MustParse("1"),
				}}},
			},
			Volumes: []v1.Volume{
				{Name: "e", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
				{Name: "c", VolumeSource: v1.VolumeSource{Cinder: &v1.CinderVolumeSource{}}},
			},
		},
	}
	want := []string{
		"metadata.annotations[seccomp.security.alpha.kubernetes.io/pod] has no effect: Kubernetes no longer reads " +
			"this annotation: set securityContext.seccompProfile",
		"spec.volumes[1].cinder is not supported: Kubernetes moved this kind to a CSI driver: use a volume of " +
			"that driver",
		"spec.tolerations[1] has no effect: a node without an API server has no taints",
	}
	var got []string
	for _, f := range Check(pod) {
		got = append(got, f.String())
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the findings are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r, w := Refusals(pod, false), Warnings(pod, false); len(r) != 1 || len(w) != 2 || r[0].String() != want[1] {
		t.Errorf("refusals %v, warnings %v", r, w)
	}
}

func TestJoin(t *testing.T) {
	f := Finding{Path: "a", Mark: NoEffect, Reason: "b"}
	one := f.String()
	for n, want := range []string{
		"", one, one + "; " + one, one + "; " + one + "; and 1 more", one + "; " + one + "; and 2 more",
	} {
		if got := Join(times(f, n), 2*len(one)+2); got != want {
			t.Errorf("%d findings: %q, want %q", n, got, want)
		}
	}
	if got := Join(times(f, 3), 1); got != fmt.Sprintf("%s; and 2 more", one) {
		t.Errorf("no room: %q", got)
	}
}

func times(f Finding, n int) []Finding {
	var out []Finding
	for range n {
		out = append(out, f)
	}
	return out
}

// Fields that need a cluster work in pods from an API server: an ordinary pod, as admission of an
// API server leaves it, has no findings.
func TestPodsOfAnAPIServer(t *testing.T) {
	yes := true
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "ns",
			Name:              "web-1",
			GenerateName:      "web-",
			UID:               "u",
			ResourceVersion:   "7",
			Generation:        1,
			CreationTimestamp: metav1.Now(),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1",
				Kind:       "ReplicaSet",
				Name:       "web",
				UID:        "r",
				Controller: &yes,
			}},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Spec: v1.PodSpec{
			ServiceAccountName:           "default",
			DeprecatedServiceAccount:     "default",
			AutomountServiceAccountToken: &yes,
			EnableServiceLinks:           &yes,
			NodeName:                     "node",
			SchedulerName:                "mine",
			Tolerations: []v1.Toleration{{
				Key:      v1.TaintNodeNotReady,
				Operator: v1.TolerationOpExists,
				Effect:   v1.TaintEffectNoExecute,
			}},
			TopologySpreadConstraints: []v1.TopologySpreadConstraint{{MaxSkew: 1}},
			ResourceClaims:            []v1.PodResourceClaim{{Name: "gpu"}},
			Containers: []v1.Container{{Name: "app", Image: "img", Resources: v1.ResourceRequirements{
				Claims: []v1.ResourceClaim{{Name: "gpu"}},
			}}},
			Volumes: []v1.Volume{
				{
					Name: "access",
					VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{
						ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"},
					}}}},
				},
				{
					Name: "scratch",
					VolumeSource: v1.VolumeSource{
						Ephemeral: &v1.EphemeralVolumeSource{VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{}},
					},
				},
			},
		},
	}
	if found := append(Refusals(pod, true), Warnings(pod, true)...); len(found) > 0 {
		t.Errorf("found: %v", found)
	}
	if len(Refusals(pod, false)) == 0 || len(Warnings(pod, false)) == 0 {
		t.Error("nothing of it is said of a pod from a manifest")
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes,
		v1.Volume{Name: "iscsi", VolumeSource: v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{IQN: "i"}}})
	var texts []string
	for _, f := range Refusals(pod, true) {
		texts = append(texts, f.String())
		if strings.Contains(f.String(), "static") {
			t.Errorf("it is no static pod: %s", f)
		}
	}
	if len(texts) != 1 {
		t.Errorf("refused: %q", texts)
	}
}
