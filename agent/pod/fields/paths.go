package fields

import (
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// node is a path of the API's types.
type node struct {
	path string
	// leaf says that the API gives the path a value, and no parts.
	leaf bool
}

// nodes lists every path of a pod's metadata and spec in the API's order, each before its parts.
// The entries of a map follow the map.
func nodes() []node {
	var out []node
	add := func(n node) { out = append(out, n) }
	walk(reflect.TypeFor[metav1.ObjectMeta](), "metadata", nil, add)
	walk(reflect.TypeFor[v1.PodSpec](), "spec", nil, add)
	return out
}

// walk adds the paths of a type. open are the structs around it, because a type may contain itself.
func walk(t reflect.Type, path string, open []reflect.Type, add func(node)) {
	t = pointed(t)
	switch {
	case isList(t):
		add(node{path, false})
		walk(t.Elem(), path+"[*]", open, add)
	case isStruct(t):
		if slices.Contains(open, t) {
			return
		}
		add(node{path, false})
		parts(t, path, append(slices.Clip(open), t), add)
	default:
		add(node{path, true})
		for _, key := range keys(t, path) {
			add(node{entry(path, key), true})
		}
	}
}

// parts adds the paths of a struct's fields.
func parts(t reflect.Type, path string, open []reflect.Type, add func(node)) {
	for i := range t.NumField() {
		f := t.Field(i)
		if name, inline := jsonName(f); inline {
			parts(f.Type, path, open, add)
		} else {
			walk(f.Type, path+"."+name, open, add)
		}
	}
}

// pointed returns the type that a pointer points to, or the type itself.
func pointed(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// isStruct reports whether a type has parts with names. Some structs are a single value in a
// manifest.
func isStruct(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[metav1.Time](),
		reflect.TypeFor[metav1.FieldsV1]():
		return false
	}
	return t.Kind() == reflect.Struct
}

// isList reports whether a type is a list. Bytes are a single value.
func isList(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8
}

// jsonName returns a field's name in manifests. inline says that the field's parts are parts of its
// struct.
func jsonName(f reflect.StructField) (name string, inline bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name, strings.Contains(options, "inline")
}

// entry returns the path of a map's entry.
func entry(path, key string) string { return path + "[" + key + "]" }

// The keys that stand for several keys.
const (
	otherKey     = "*"
	hugePagesKey = v1.ResourceHugePagesPrefix + "*"
)

// keys returns the keys of a map that have a path, the most general last. It returns nil if the
// type is no map, and for maps whose keys all mean the same.
func keys(t reflect.Type, path string) []string {
	switch {
	case t == reflect.TypeFor[v1.ResourceList]() && !strings.Contains(path, ".volumeClaimTemplate."):
		return []string{
			string(v1.ResourceCPU), string(v1.ResourceMemory), string(v1.ResourceEphemeralStorage), hugePagesKey,
			otherKey,
		}
	case path == annotationsPath:
		return append(annotationKeys(), otherKey)
	}
	return nil
}

// keyOf returns which of keys stands for a map's key: the key itself, or one that ends in * and has
// the same beginning.
func keyOf(keys []string, key string) string {
	i := slices.IndexFunc(keys, func(k string) bool {
		prefix, open := strings.CutSuffix(k, "*")
		return k == key || open && strings.HasPrefix(key, prefix)
	})
	return keys[i]
}
