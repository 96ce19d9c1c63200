package volumes

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// observed collects operations.
type observed struct {
	mu  sync.Mutex
	all []string
}

func (o *observed) add(plugin, operation string, _ time.Duration, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		operation += " failed"
	}
	o.all = append(o.all, plugin+" "+operation)
}

// take returns what was collected since the last call, sorted.
func (o *observed) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.all = nil }()
	return slices.Sorted(slices.Values(o.all))
}

// Each volume is measured when it comes up, when it fails, and when it goes; a volume that is up
// already is not.
func TestOperationsAreMeasured(t *testing.T) {
	seen := &observed{}
	o := newOperations(seen.add)
	o.begin("uid", "a")
	o.end("uid", "a", "kubernetes.io/nfs", false, ErrUnderWay)
	o.begin("uid", "a")
	o.end("uid", "a", "kubernetes.io/nfs", false, errors.New("no"))
	o.begin("uid", "a")
	o.end("uid", "a", "kubernetes.io/nfs", false, nil)
	o.begin("uid", "a")
	o.end("uid", "a", "kubernetes.io/nfs", false, nil)
	o.begin("uid", "b")
	o.end("uid", "b", "", false, nil) // of a claim that nobody knows
	o.begin("uid", "c")
	o.end("uid", "c", "kubernetes.io/csi:d", true, nil)
	want := []string{
		"kubernetes.io/csi:d map_volume", "kubernetes.io/nfs volume_mount", "kubernetes.io/nfs volume_mount failed",
	}
	if got := seen.take(); !slices.Equal(got, want) {
		t.Errorf("up: %q", got)
	}
	o.down("uid", time.Second, errors.New("busy"))
	o.down("uid", time.Second, nil)
	o.down("uid", time.Second, nil)
	want = []string{
		"kubernetes.io/csi:d unmap_volume", "kubernetes.io/csi:d unmap_volume failed", "kubernetes.io/nfs volume_unmount",
		"kubernetes.io/nfs volume_unmount failed",
	}
	if got := seen.take(); !slices.Equal(got, want) {
		t.Errorf("down: %q", got)
	}
	if len(o.pods) != 0 {
		t.Errorf("left: %v", o.pods)
	}
}

// Every kind of volume that a pod can have here has its plugin's name.
func TestPluginNames(t *testing.T) {
	sources := reflect.TypeFor[v1.VolumeSource]()
	for _, kind := range []string{
		"EmptyDir", "ConfigMap", "Secret", "DownwardAPI", "Projected", "HostPath", "NFS", "CSI",
	} {
		source := reflect.New(sources).Elem()
		field := source.FieldByName(kind)
		field.Set(reflect.New(field.Type().Elem()))
		if name := pluginName(source.Addr().Interface().(*v1.VolumeSource), nil); name == "" {
			t.Errorf("%s has no plugin", kind)
		}
	}
}

// An emptyDir of a real pod is measured on its way up and down.
func TestManagerMeasuresOperations(t *testing.T) {
	seen := &observed{}
	m := New(Config{RootDir: t.TempDir()}, Deps{Objects: nil, Operation: seen.add})
	pod := &v1.Pod{Spec: v1.PodSpec{
		Volumes: []v1.Volume{{Name: "d", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
		Containers: []v1.Container{{
			Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "d", MountPath: "/d"}},
		}},
	}}
	pod.UID = "uid"
	if err := m.EnsureDirs(context.Background(), pod); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := m.Ensure(t.Context(), pod, Dynamic{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Remove(t.Context(), "uid"); err != nil {
		t.Fatal(err)
	}
	want := []string{"kubernetes.io/empty-dir volume_mount", "kubernetes.io/empty-dir volume_unmount"}
	if got := seen.take(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
