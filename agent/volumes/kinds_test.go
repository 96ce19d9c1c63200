package volumes

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/mount-utils"

	"github.com/berthd/berth/agent/pod/volumekinds"
)

// No kind of volume, and no kind of projection, is ever silently left out: it is up, or its name is
// in an error.
func TestNoKindIsIgnored(t *testing.T) {
	check := func(t *testing.T, kind string, source v1.VolumeSource) {
		t.Helper()
		m := testManager(t.TempDir(), newStore(), mount.NewFakeMounter(nil))
		pod := testPod(v1.Volume{Name: "v", VolumeSource: source})
		must(t, m.EnsureDirs(t.Context(), pod))
		mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
		_, up := mounts["v"]
		// the runtime mounts images, and step "image volumes" has them
		if kind != "image" && up == (len(Failures(err)) == 1) {
			t.Errorf("up: %v, error: %v", up, err)
		}
		if _, why := volumekinds.Refused(&source); (why != "") != errors.Is(err, ErrUnsupported) &&
			!slices.Contains([]string{"serviceAccountToken", "clusterTrustBundle", "podCertificate"}, kind) {
			t.Errorf("refused because of %q, and the error is %v", why, err)
		}
	}
	for i := range reflect.TypeFor[v1.VolumeSource]().NumField() {
		var source v1.VolumeSource
		field := reflect.ValueOf(&source).Elem().Field(i)
		field.Set(reflect.New(field.Type().Elem()))
		kind := fieldName(reflect.TypeFor[v1.VolumeSource]().Field(i))
		t.Run(kind, func(t *testing.T) { check(t, kind, source) })
	}
	for i := range reflect.TypeFor[v1.VolumeProjection]().NumField() {
		var projection v1.VolumeProjection
		field := reflect.ValueOf(&projection).Elem().Field(i)
		field.Set(reflect.New(field.Type().Elem()))
		kind := fieldName(reflect.TypeFor[v1.VolumeProjection]().Field(i))
		t.Run("projected "+kind, func(t *testing.T) {
			check(t, kind,
				v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{projection}}})
		})
	}
}

// PersistentVolumes of every kind: mounted, or refused by the field's name.
func TestNoKindOfPersistentVolumeIsIgnored(t *testing.T) {
	for i := range reflect.TypeFor[v1.PersistentVolumeSource]().NumField() {
		var source v1.PersistentVolumeSource
		field := reflect.ValueOf(&source).Elem().Field(i)
		field.Set(reflect.New(field.Type().Elem()))
		kind := fieldName(reflect.TypeFor[v1.PersistentVolumeSource]().Field(i))
		t.Run(kind, func(t *testing.T) {
			pv := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: source}}
			pv.Name = "pv"
			m := testManager(t.TempDir(), newStore(), mount.NewFakeMounter(nil))
			m.deps.Claims = boundTo{"c": pv}
			pod := testPod(claimVolume("v", "c"))
			must(t, m.EnsureDirs(t.Context(), pod))
			mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
			_, up := mounts["v"]
			if up == (len(Failures(err)) == 1) {
				t.Errorf("up: %v, error: %v", up, err)
			}
			if got := errors.Is(err,
				ErrUnsupported); got == slices.Contains([]string{"csi", "hostPath", "local", "nfs"}, kind) {
				t.Errorf("refused: %v: %v", got, err)
			}
		})
	}
}

// fieldName returns the API's name of a field.
func fieldName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

// boundTo is a Claims of bound claims by name.
type boundTo map[string]*v1.PersistentVolume

func (b boundTo) Resolve(_ *v1.Pod, claim string) (*v1.PersistentVolume, error) {
	if pv := b[claim]; pv != nil {
		return pv, nil
	}
	return nil, errors.New("PVC is not bound")
}

// elsewhere is a Claims whose volume cannot be on this node.
type elsewhere struct{ pv *v1.PersistentVolume }

func (e elsewhere) Resolve(*v1.Pod, string) (*v1.PersistentVolume, error) {
	return e.pv, errors.New("no matching NodeSelectorTerms")
}

// What is wrong with the volume of a claim names the volume, not what the pod calls it.
func TestVolumeElsewhere(t *testing.T) {
	for want, pv := range map[string]*v1.PersistentVolume{
		`FailedMount: MountVolume.NodeAffinity check failed for volume "pv-1" : no matching NodeSelectorTerms`: localPV(
			"pv-1", "/"),
		`FailedMapVolume: MapVolume.NodeAffinity check failed for volume "pv-1" : no matching NodeSelectorTerms`: block(
			localPV("pv-1", "/")),
	} {
		m, pod := claimant(t, pv, nil)
		m.deps.Claims = elsewhere{pv}
		mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
		f := Failures(err)
		if len(mounts) > 0 || len(f) != 1 || f[0].Reason()+": "+f[0].Error() != want {
			t.Errorf("got %v, %v, want %s", mounts, err, want)
		}
	}
}
