package volumekinds

import (
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Every kind of volume that the API knows is made or refused, and not both. A new release's kind
// fails this until somebody has looked at it.
func TestEveryKindIsMadeOrRefused(t *testing.T) {
	known := map[string]bool{}
	for _, source := range []any{v1.VolumeSource{}, v1.PersistentVolumeSource{}} {
		for i := range reflect.TypeOf(source).NumField() {
			kind := name(reflect.TypeOf(source).Field(i))
			known[kind] = true
			if made, why := slices.Contains(madeHere(), kind), refused()[kind]; made == (why != "") {
				t.Errorf("%s is made: %v, refused: %q", kind, made, why)
			}
		}
	}
	for _, kind := range madeHere() {
		if !known[kind] {
			t.Errorf("%s is made and not known", kind)
		}
	}
	for kind := range refused() {
		if !known[kind] {
			t.Errorf("%s is refused and not known", kind)
		}
	}
}
