package source

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/source/objects"
)

// leaves calls visit for every string and every pointer to a struct within the type of v, allocated
// in v itself: a copy of the type's whole tree with one element in each list. path is the JSON
// path, with [0] for lists.
func leaves(v reflect.Value, path string, depth int, visit func(path string, leaf reflect.Value)) {
	if depth > 14 {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.Struct && strings.HasPrefix(v.Type().Elem().PkgPath(), "k8s.io/api/") {
			visit(path, v)
		}
		v.Set(reflect.New(v.Type().Elem()))
		leaves(v.Elem(), path, depth+1, visit)
		v.SetZero()
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		leaves(v.Index(0), path+"[0]", depth+1, visit)
		v.SetZero()
	case reflect.Struct:
		if !strings.HasPrefix(v.Type().PkgPath(), "k8s.io/api/") {
			return
		}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			at := path
			if name != "" {
				at = strings.TrimPrefix(path+"."+name, ".")
			}
			leaves(v.Field(i), at, depth+1, visit)
		}
	case reflect.String:
		visit(path, v)
	}
}

// Every field of a pod that could refer to another object is either visited, or listed here with
// the reason why it is no reference. A new release's new field fails this test until somebody has
// looked at it.
func TestReferencesAreComplete(t *testing.T) {
	suspicious := regexp.MustCompile(
		`(?i)secret|configmap|serviceaccount|claim|\.csi\b|trustbundle|certificate|endpoints|classname|runtimeclass|ref\b|ref\.|template|group\b.*name|workload|scheduling`)
	notReferences := map[string]string{
		`\.(key|path|mode|optional|prefix|audience|volumeName|keyType)$`: "part of a reference, not its target",
		`\.items\[0\](\.|$)`: "keys within the object",
		`\.(namespace|apiVersion|apiGroup|kind|uid|resourceVersion|fieldPath|resource|containerName)$`: "part of a reference, not its target",
		`fieldRef|resourceFieldRef|fileKeyRef`:                                                         "refers to the pod itself",
		`secretFile$`:                                                                                  "a path on the host",
		`\.resources\.claims\[0\]`:                                                                     "refers to the pod's own resourceClaims",
		`csi\.(fsType|driver|readOnly)$`:                                                               "checked as the volume itself",
		`resourceClaims\[0\]\.name$`:                                                                   "a name within the pod",
		`\.ephemeral\.volumeClaimTemplate`:                                                             "checked as the volume itself",
		`(clusterTrustBundle|podCertificate|serviceAccountToken)\.`:                                    "checked as the projection itself",
		`^spec\.affinity\.|schedulingGroup`:                                                            "for the scheduler",
		`schedulingGates\[0\]`:                                                                         "not allowed on pods that have a node",
		`\.labelSelector`:                                                                              "selects, does not refer",
		`(cinder|cephfs|rbd|scaleIO|storageos|iscsi|flexVolume|csi|azureFile|glusterfs|configMap|secret|configMapRef|secretRef|configMapKeyRef|secretKeyRef|nodePublishSecretRef|persistentVolumeClaim)$`: "the name within is the reference",
	}
	var missing []string
	spec := &v1.PodSpec{}
	leaves(reflect.ValueOf(spec).Elem(), "spec", 0, func(path string, leaf reflect.Value) {
		if !suspicious.MatchString(path) {
			return
		}
		if leaf.Kind() == reflect.String {
			leaf.SetString("sentinel")
		} else {
			leaf.Set(reflect.New(leaf.Type().Elem()))
		}
		visited := false
		for ref := range References(spec) {
			visited = visited || ref.Name == "sentinel" || ref.Path == path
		}
		leaf.SetZero()
		if visited {
			return
		}
		for pattern := range notReferences {
			if regexp.MustCompile(pattern).MatchString(path) {
				return
			}
		}
		missing = append(missing, path)
	})
	if len(missing) > 0 {
		t.Errorf("neither visited nor listed as no reference:\n%s", strings.Join(missing, "\n"))
	}
}

// References finds the same in all three kinds of containers.
func TestReferencesInEveryKindOfContainer(t *testing.T) {
	c := v1.Container{
		EnvFrom: []v1.EnvFromSource{
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm1"}}},
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "s1"}}},
		},
		Env: []v1.EnvVar{
			{
				ValueFrom: &v1.EnvVarSource{
					ConfigMapKeyRef: &v1.ConfigMapKeySelector{
						LocalObjectReference: v1.LocalObjectReference{Name: "cm2"},
					},
				},
			},
			{
				ValueFrom: &v1.EnvVarSource{
					SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "s2"}},
				},
			},
		},
	}
	specs := map[string]v1.PodSpec{
		"initContainers": {InitContainers: []v1.Container{c}},
		"containers":     {Containers: []v1.Container{c}},
		"ephemeralContainers": {
			EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon(c)}},
		},
	}
	for list, spec := range specs {
		got := map[string]string{}
		for ref := range References(&spec) {
			got[ref.Path] = ref.Kind + " " + ref.Name
		}
		at := "spec." + list + "[0]"
		want := map[string]string{
			at + ".envFrom[0].configMapRef.name":          "ConfigMap cm1",
			at + ".envFrom[1].secretRef.name":             "Secret s1",
			at + ".env[0].valueFrom.configMapKeyRef.name": "ConfigMap cm2",
			at + ".env[1].valueFrom.secretKeyRef.name":    "Secret s2",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", list, diff)
		}
	}
}

func TestReferencesStop(t *testing.T) {
	spec := &v1.PodSpec{ImagePullSecrets: []v1.LocalObjectReference{{Name: "a"}, {Name: "b"}}, ServiceAccountName: "s"}
	n := 0
	for range References(spec) {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d", n)
	}
}

// What upstream refuses to static pods is refused with upstream's words; ConfigMaps, Secrets and
// CSI drivers are not, since they are local here.
func TestWhichReferencesAreRefused(t *testing.T) {
	volumes := map[string]v1.VolumeSource{
		"": {
			CSI: &v1.CSIVolumeSource{Driver: "x"}, ConfigMap: &v1.ConfigMapVolumeSource{},
		},
		"endpoints (via glusterFS volumes)":              {Glusterfs: &v1.GlusterfsVolumeSource{EndpointsName: "x"}},
		"persistentvolumeclaims (via ephemeral volumes)": {Ephemeral: &v1.EphemeralVolumeSource{}},
		"secrets (via azureFile volumes)":                {AzureFile: &v1.AzureFileVolumeSource{SecretName: "x"}},
		"serviceaccounts (via projected volumes)": {Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{}},
			{Secret: &v1.SecretProjection{}},
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{}},
		}}},
		"clustertrustbundles": {
			Projected: &v1.ProjectedVolumeSource{
				Sources: []v1.VolumeProjection{{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{}}},
			},
		},
		"podcertificates": {
			Projected: &v1.ProjectedVolumeSource{
				Sources: []v1.VolumeProjection{{PodCertificate: &v1.PodCertificateProjection{}}},
			},
		},
	}
	specs := map[string]v1.PodSpec{
		"serviceaccounts": {ServiceAccountName: "x"},
		"resourceclaims":  {ResourceClaims: []v1.PodResourceClaim{{Name: "x"}}},
	}
	for want, source := range volumes {
		specs[want] = v1.PodSpec{Volumes: []v1.Volume{{Name: "v", VolumeSource: source}}}
	}
	for _, want := range slices.Sorted(maps.Keys(specs)) {
		spec := specs[want]
		refused := ""
		for ref := range References(&spec) {
			if !ref.Local() && refused == "" {
				refused = ref.Resource()
			}
		}
		if refused != want {
			t.Errorf("refused %q, want %q", refused, want)
		}
	}
	local := v1.PodSpec{
		ImagePullSecrets: []v1.LocalObjectReference{{Name: "s"}},
		Volumes: []v1.Volume{
			{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}},
			{
				VolumeSource: v1.VolumeSource{
					PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
				},
			},
		},
	}
	kinds := map[string]int{}
	for ref := range References(&local) {
		kinds[ref.Kind]++
		if !ref.Local() {
			t.Error(fmt.Sprint(ref))
		}
	}
	if diff := cmp.Diff(map[string]int{objects.KindSecret: 2, objects.KindClaim: 1}, kinds); diff != "" {
		t.Error(diff)
	}
}
