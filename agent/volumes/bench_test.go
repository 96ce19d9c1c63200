package volumes

import "testing"

// BenchmarkEnsureUnchanged is a sync in which nothing changed, for an emptyDir, a hostPath and a
// ConfigMap.
func BenchmarkEnsureUnchanged(b *testing.B) {
	pod, objects := allVolumes("/")
	pod.Spec.Volumes = pod.Spec.Volumes[:4] // those that need no mount
	pod.Spec.Volumes = append(pod.Spec.Volumes[:1], pod.Spec.Volumes[2:]...)
	m := testManager(b.TempDir(), objects, nil)
	if err := m.EnsureDirs(b.Context(), pod); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := m.Ensure(b.Context(), pod, Dynamic{}); err != nil {
			b.Fatal(err)
		}
	}
}
