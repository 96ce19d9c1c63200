package volumes

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A pod does not multiply one object without end: by projecting one key to many paths, or by
// projecting the object many times.
func TestContentOfVolumesIsBounded(t *testing.T) {
	const mebibytes = maxContent>>20 + 1
	objects := newStore()
	objects.setSecret("s", map[string]string{"key": strings.Repeat("x", 1<<20)})
	many, often := secretVolume("v", "s"), v1.Volume{Name: "v"}
	often.Projected = &v1.ProjectedVolumeSource{}
	for i := range mebibytes {
		item := v1.KeyToPath{Key: "key", Path: fmt.Sprint(i)}
		many.Secret.Items = append(many.Secret.Items, item)
		often.Projected.Sources = append(often.Projected.Sources, v1.VolumeProjection{Secret: &v1.SecretProjection{
			LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Items: []v1.KeyToPath{item},
		}})
	}
	for name, volume := range map[string]v1.Volume{"items": many, "sources": often} {
		m := testManager(t.TempDir(), objects, failingMounter{})
		pod := testPod(volume)
		must(t, m.EnsureDirs(t.Context(), pod))
		mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
		want := fmt.Sprintf("larger than %d MiB together", maxContent>>20)
		if err == nil || !strings.Contains(err.Error(), want) || len(mounts) != 0 {
			t.Errorf("%s: %v, and the error is %v", name, mounts, err)
		}
	}
}
