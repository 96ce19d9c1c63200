package fields

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Finding is a field that a pod uses and that does not work.
type Finding struct {
	// Path is the field's place in the pod: "spec.volumes[0].cinder".
	Path string
	// Mark is [NoEffect] or [Refused].
	Mark Mark
	// Reason says why the field does not work.
	Reason string
}

// String is the finding as warnings and events show it.
func (f Finding) String() string {
	if f.Mark == Refused {
		return fmt.Sprintf("%s is not supported: %s", f.Path, f.Reason)
	}
	return fmt.Sprintf("%s has no effect: %s", f.Path, f.Reason)
}

// Check returns the fields of a manifest's pod that have no effect and those that are refused. They
// are in the order of the API's types. The pod may be as its author wrote it, or have the API's
// defaults.
func Check(pod *v1.Pod) []Finding { return check(pod, false) }

func check(pod *v1.Pod, fromAPI bool) []Finding {
	v := visitor{index: index(), fromAPI: fromAPI}
	v.visit(reflect.ValueOf(pod.ObjectMeta), "metadata", "metadata")
	v.visit(reflect.ValueOf(pod.Spec), "spec", "spec")
	return v.found
}

// Refusals returns the findings that keep the pod from running. fromAPI says that the pod came from
// an API server.
func Refusals(pod *v1.Pod, fromAPI bool) []Finding { return only(Refused, check(pod, fromAPI)) }

// Warnings returns the findings about fields without effect. fromAPI says that the pod came from an
// API server.
func Warnings(pod *v1.Pod, fromAPI bool) []Finding { return only(NoEffect, check(pod, fromAPI)) }

func only(mark Mark, findings []Finding) []Finding {
	return slices.DeleteFunc(findings, func(f Finding) bool { return f.Mark != mark })
}

// Join writes findings as one text of at most limit bytes.
func Join(findings []Finding, limit int) string {
	var out strings.Builder
	for i, f := range findings {
		text := f.String()
		if i > 0 {
			text = "; " + text
		}
		if out.Len()+len(text) > limit && i > 0 {
			fmt.Fprintf(&out, "; and %d more", len(findings)-i)
			break
		}
		out.WriteString(text)
	}
	return out.String()
}

// visitor walks over the values of a pod.
type visitor struct {
	index   rules
	fromAPI bool
	found   []Finding
}

// visit visits a value that is set. path is its place in the types, at its place in the pod. visit
// does not look below a field that has a finding.
func (v *visitor) visit(value reflect.Value, path, at string) {
	for value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	t := value.Type()
	switch {
	case isList(t):
		for i := range value.Len() {
			v.visit(value.Index(i), path+"[*]", fmt.Sprintf("%s[%d]", at, i))
		}
	case v.finding(value, path, at):
	case isStruct(t):
		v.parts(value, path, at)
	default:
		known := keys(t, path)
		if known == nil {
			return
		}
		for _, key := range sortedKeys(value) {
			v.finding(value.MapIndex(reflect.ValueOf(key).Convert(t.Key())), entry(path, keyOf(known, key)),
				entry(at, key))
		}
	}
}

// parts visits the fields of a struct that are set.
func (v *visitor) parts(value reflect.Value, path, at string) {
	for i := range value.NumField() {
		field := value.Field(i)
		name, inline := jsonName(value.Type().Field(i))
		switch {
		case inline:
			v.parts(field, path, at)
		case !isUnset(field):
			v.visit(field, path+"."+name, at+"."+name)
		}
	}
}

// finding adds a finding if the value's rule says that the field does not work, and reports whether
// it added one.
func (v *visitor) finding(value reflect.Value, path, at string) bool {
	r := v.index.find(path)
	if r != nil && v.fromAPI {
		of := r.forAPI()
		r = &of
	}
	if r == nil || r.mark == Works || r.mark == WorksWhere {
		return false
	}
	if !slices.Contains(r.plain, fmt.Sprint(value.Interface())) {
		v.found = append(v.found, Finding{Path: at, Mark: r.mark, Reason: r.condition})
	}
	return true
}

// isUnset reports whether a field was left out.
func isUnset(value reflect.Value) bool {
	switch value.Kind() {
	case reflect.Slice, reflect.Map:
		return value.Len() == 0
	default:
		return value.IsZero()
	}
}

// sortedKeys returns the keys of a map with string keys, sorted.
func sortedKeys(m reflect.Value) []string {
	var out []string
	for _, key := range m.MapKeys() {
		out = append(out, key.String())
	}
	slices.Sort(out)
	return out
}
