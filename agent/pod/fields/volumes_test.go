package fields

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/volumekinds"
)

// TestVolumesAreRefusedByBoth checks that this package refuses a kind of volume if, and only if,
// package volumes refuses it, and for the same reason.
func TestVolumesAreRefusedByBoth(t *testing.T) {
	kinds := reflect.TypeFor[v1.VolumeSource]()
	for i := range kinds.NumField() {
		var source v1.VolumeSource
		reflect.ValueOf(&source).Elem().Field(i).Set(reflect.New(kinds.Field(i).Type.Elem()))
		name, _ := jsonName(kinds.Field(i))
		_, why := volumekinds.Refused(&source)
		if name == "image" {
			continue // the runtime mounts it
		}
		r := index().find("spec.volumes[*]." + name)
		if r == nil {
			t.Errorf("no rule names volumes of kind %s", name)
		} else if (r.mark == Refused) != (why != "") || why != "" && r.condition != why {
			t.Errorf("volumes of kind %s are %q here (%s), and to package volumes refused for %q", name, r.mark,
				r.condition, why)
		}
	}
}
