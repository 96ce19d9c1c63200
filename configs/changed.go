package configs

import (
	"maps"
	"reflect"
	"slices"
)

// Changed returns the sorted paths of the settings that differ between two configs. berth's own
// settings have the prefix "berth:", flags without a field the prefix "--".
func Changed(a, b *Config) []string {
	paths := map[string]bool{}
	differences("", asJSON(a.Kubelet), asJSON(b.Kubelet), paths)
	differences(berthPrefix, asJSON(a.Berth), asJSON(b.Berth), paths)
	if !reflect.DeepEqual(a.Flags, b.Flags) {
		paths["--flags"] = true
	}
	return slices.Sorted(maps.Keys(paths))
}

// differences adds the paths of the values that differ.
func differences(prefix string, a, b map[string]any, paths map[string]bool) {
	for key := range a {
		if _, there := b[key]; !there {
			paths[prefix+key] = true
		}
	}
	for key, want := range b {
		have, there := a[key]
		inner, isMap := have.(map[string]any)
		other, areMaps := want.(map[string]any)
		switch {
		case there && isMap && areMaps:
			differences(prefix+key+".", inner, other, paths)
		case !there || !reflect.DeepEqual(have, want):
			paths[prefix+key] = true
		}
	}
}
