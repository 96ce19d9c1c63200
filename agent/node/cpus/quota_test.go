package cpus

import (
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Only who has CPUs for himself is told so, and only while he has them.
func TestPinned(t *testing.T) {
	b := &bed{}
	m := newManager(t, b, filepath.Join(t.TempDir(), "state"))
	pod := podOf("a", "app 2", "shares 500m")
	app, shares := &pod.Spec.Containers[0], &pod.Spec.Containers[1]
	is := func(want bool, when string, containers ...*v1.Container) {
		t.Helper()
		for _, c := range containers {
			if m.Pinned(pod, c) != want {
				t.Errorf("%s, %v: %t", when, c, !want)
			}
		}
	}
	is(false, "before it has any", nil, app, shares)
	if err := b.give(m, pod); err != nil {
		t.Fatal(err)
	}
	is(true, "when it has some", nil, app)
	is(false, "when the other one has some", shares)
	m.Release(pod.UID)
	is(false, "when it has none any more", nil, app, shares)
}
