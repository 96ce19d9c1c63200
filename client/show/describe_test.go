package show

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDescribeNamesSources checks that each volume, mount and value is shown with its source.
func TestDescribeNamesSources(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{{
			Name: "c",
			Env: []v1.EnvVar{{
				Name:      "A",
				ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: "p/env", Key: "K"}},
			}},
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

// TestDescribeEnds checks that only a deleted pod that has not ended is Terminating.
func TestDescribeEnds(t *testing.T) {
	now, grace := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), int64(30)
	for name, tc := range map[string]struct {
		phase    v1.PodPhase
		deleted  time.Duration
		want     string
		hasGrace bool
	}{
		"running":           {phase: v1.PodRunning, want: "Running"},
		"finished":          {phase: v1.PodSucceeded, want: "Succeeded"},
		"finished and gone": {phase: v1.PodSucceeded, deleted: -time.Minute, want: "Succeeded"},
		"failed and gone":   {phase: v1.PodFailed, deleted: -time.Minute, want: "Failed"},
		"being deleted": {
			phase:    v1.PodRunning,
			deleted:  -90 * time.Second,
			want:     "Terminating (lasts 90s)",
			hasGrace: true,
		},
		"grace not over yet": {
			phase:    v1.PodRunning,
			deleted:  20 * time.Second,
			want:     "Terminating (lasts 0s)",
			hasGrace: true,
		},
	} {
		pod := &v1.Pod{Status: v1.PodStatus{Phase: tc.phase}}
		if tc.deleted != 0 {
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(tc.deleted)}, &grace
		}
		var out strings.Builder
		if err := Describe(&out, pod, nil, nil, now); err != nil {
			t.Fatal(err)
		}
		if want := "Status:           " + tc.want + "\n"; !strings.Contains(out.String(), want) ||
			strings.Contains(out.String(), "Termination Grace Period: 30s\n") != tc.hasGrace {
			t.Errorf("%s: want %q and its grace %v, got\n%s", name, want, tc.hasGrace, &out)
		}
	}
}
