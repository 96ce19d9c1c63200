package pods

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Change is a field in which two versions of a pod differ.
type Change struct {
	// Path is the field's path, such as spec.containers[0].image.
	Path string
	// From and To are the values in JSON, or "(none)"; long ones are cut off.
	From, To string
}

// String returns the path and both values.
func (c Change) String() string { return fmt.Sprintf("%s: %s -> %s", c.Path, c.From, c.To) }

// Changes returns the fields in which two versions of a pod differ, by their paths. It compares
// what comes from manifests: spec, labels and annotations, without what the agent adds. No manifest
// has ephemeral containers.
func Changes(from, to *v1.Pod) []Change {
	var out []Change
	compare("", ofManifest(from), ofManifest(to), &out)
	return out
}

// ofManifest returns the parts of a pod that come from its manifest.
func ofManifest(pod *v1.Pod) map[string]any {
	spec := pod.Spec
	spec.EphemeralContainers = nil
	out := map[string]any{}
	for key, value := range map[string]any{
		"spec": spec, "labels": pod.Labels, "annotations": ManifestAnnotations(pod),
	} {
		var plain any
		if data, err := json.Marshal(value); err == nil && json.Unmarshal(data, &plain) == nil {
			out[key] = plain
		}
	}
	return map[string]any{
		"spec": out["spec"], "metadata": map[string]any{"labels": out["labels"], "annotations": out["annotations"]},
	}
}

// compare adds the fields in which two JSON values differ.
func compare(path string, x, y any, out *[]Change) {
	xm, xIsMap := x.(map[string]any)
	ym, yIsMap := y.(map[string]any)
	if xIsMap && yIsMap || xIsMap && y == nil || x == nil && yIsMap {
		keys := maps.Clone(xm)
		if keys == nil {
			keys = map[string]any{}
		}
		maps.Copy(keys, ym)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			compare(strings.TrimPrefix(path+"."+key, "."), xm[key], ym[key], out)
		}
		return
	}
	xl, xIsList := x.([]any)
	yl, yIsList := y.([]any)
	if xIsList && yIsList {
		for i := range max(len(xl), len(yl)) {
			var a, b any
			if i < len(xl) {
				a = xl[i]
			}
			if i < len(yl) {
				b = yl[i]
			}
			at := fmt.Sprintf("%s[%d]", path, i)
			if a == nil || b == nil {
				*out = append(*out, Change{at, text(a), text(b)})
				continue
			}
			compare(at, a, b, out)
		}
		return
	}
	// the whole values, because a long one is cut off
	if a, b := whole(x), whole(y); a != b {
		*out = append(*out, Change{path, text(x), text(y)})
	}
}

// maxValue is how many bytes of a value are shown.
const maxValue = 120

// text returns the beginning of a value.
func text(value any) string {
	data := whole(value)
	if len(data) > maxValue {
		return strings.ToValidUTF8(data[:maxValue], "") + "…"
	}
	return data
}

// whole returns a value in JSON.
func whole(value any) string {
	if value == nil {
		return "(none)"
	}
	data, err := json.Marshal(value)
	if err != nil {
		return "?"
	}
	return string(data)
}
