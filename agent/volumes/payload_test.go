package volumes

import (
	"fmt"
	"runtime"
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

// The values of the downward API are made one by one, and no more of them than there is room for.
func TestDownwardValuesAreBounded(t *testing.T) {
	const size = 1 << 20
	items := make([]v1.DownwardAPIVolumeFile, 10000)
	for i := range items {
		items[i] = v1.DownwardAPIVolumeFile{
			Path: fmt.Sprint(i), FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations"},
		}
	}
	sources := make([]v1.VolumeProjection, 10)
	for i := range sources {
		sources[i].DownwardAPI = &v1.DownwardAPIProjection{Items: items}
	}
	for name, source := range map[string]v1.VolumeSource{
		"volume":  {DownwardAPI: &v1.DownwardAPIVolumeSource{Items: items}},
		"sources": {Projected: &v1.ProjectedVolumeSource{Sources: sources}},
	} {
		made := 0
		m := testManager(t.TempDir(), newStore(), failingMounter{})
		m.deps.FieldValue = func(*v1.Pod, *v1.ObjectFieldSelector, Dynamic) (string, error) {
			made++
			return strings.Repeat("x", size), nil
		}
		pod := testPod(v1.Volume{Name: "v", VolumeSource: source})
		must(t, m.EnsureDirs(t.Context(), pod))
		_, err := m.Ensure(t.Context(), pod, Dynamic{})
		if err == nil || !strings.Contains(err.Error(), "MiB together") || made > maxContent/size+1 {
			t.Errorf("%s: %d values were made, and the error is %v", name, made, err)
		}
	}
}

// A ConfigMap that many sources use is taken apart once.
func TestConfigMapOfManySources(t *testing.T) {
	objects := newStore()
	objects.setConfigMap("c", map[string]string{"key": strings.Repeat("x", 1<<20)})
	volume := v1.Volume{Name: "v"}
	volume.Projected = &v1.ProjectedVolumeSource{}
	optional := true
	for range 2000 {
		volume.Projected.Sources = append(volume.Projected.Sources, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{
			LocalObjectReference: v1.LocalObjectReference{Name: "c"}, Optional: &optional,
			Items: []v1.KeyToPath{{Key: "absent", Path: "p"}},
		}})
	}
	m := testManager(t.TempDir(), objects, failingMounter{})
	pod := testPod(volume)
	must(t, m.EnsureDirs(t.Context(), pod))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := m.Ensure(t.Context(), pod, Dynamic{})
	runtime.ReadMemStats(&after)
	made := after.TotalAlloc - before.TotalAlloc
	if err == nil || !strings.Contains(err.Error(), "mount tmpfs") || made > 64<<20 {
		t.Errorf("%d MiB were made, and the error is %v", made>>20, err)
	}
}
