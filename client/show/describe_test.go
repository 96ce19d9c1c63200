package show

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestDescribeNamesSources shows where each volume, mount and value comes from.
func TestDescribeNamesSources(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{{
			Name:         "c",
			Env:          []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: "p/env", Key: "K"}}}},
			VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/m", SubPathExpr: "$(A)/x"}},
		}},
		Volumes: []v1.Volume{
			{Name: "img", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "r/i:1"}}},
			{Name: "share", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "s", Path: "/p"}}},
			{Name: "inline", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d.example.com"}}},
			{Name: "own", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}},
		},
	}}
	var out strings.Builder
	if err := Describe(&out, pod, nil, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<set to the key 'K' of file 'p/env' in volume 'v'>", `/m from v (rw,path="$(A)/x")`,
		"Image r/i:1", "NFS s:/p", "CSI d.example.com", "a PersistentVolumeClaim of the pod's own",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
}
