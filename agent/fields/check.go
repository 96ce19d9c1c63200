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
	// Path is where it is in the pod: "spec.volumes[0].cinder".
	Path string
	// Mark is [NoEffect] or [Refused].
	Mark Mark
	// Reason says why, or what is the matter.
	Reason string
}

// String is the finding as warnings and events have it.
func (f Finding) String() string {
	if f.Mark == Refused {
		return fmt.Sprintf("%s is not supported: %s", f.Path, f.Reason)
	}
	return fmt.Sprintf("%s has no effect: %s", f.Path, f.Reason)
}

// Check returns which of the fields of a manifest's pod have no effect and which are refused, in the order of the API's types, and then those whose effect depends on
// another field. The pod may be as its author wrote it, or with the API's defaults.
func Check(pod *v1.Pod) []Finding { return check(pod, false) }

func check(pod *v1.Pod, bound bool) []Finding {
	v := visitor{index: index(), bound: bound}
	v.visit(reflect.ValueOf(pod.ObjectMeta), "metadata", "metadata")
	v.visit(reflect.ValueOf(pod.Spec), "spec", "spec")
	return append(v.found, unlimited(pod)...)
}

// diskLimit says what becomes of the size limit of an emptyDir that is not in memory: Kubernetes evicts a pod that exceeds it, and this version evicts none.
const diskLimit = "an emptyDir on disk is not limited, since this version evicts no pods; medium: Memory is"

// unlimited finds the size limits of emptyDirs on disk.
func unlimited(pod *v1.Pod) []Finding {
	var found []Finding
	for i := range pod.Spec.Volumes {
		if dir := pod.Spec.Volumes[i].EmptyDir; dir != nil && dir.Medium == v1.StorageMediumDefault && dir.SizeLimit != nil {
			found = append(found, Finding{Path: fmt.Sprintf("spec.volumes[%d].emptyDir.sizeLimit", i), Mark: NoEffect, Reason: diskLimit})
		}
	}
	return found
}

// Refusals returns the findings that keep the pod from running; bound says that it came from an API server.
func Refusals(pod *v1.Pod, bound bool) []Finding { return only(Refused, check(pod, bound)) }

// Warnings returns the findings about fields without effect; bound says that the pod came from an API server.
func Warnings(pod *v1.Pod, bound bool) []Finding { return only(NoEffect, check(pod, bound)) }

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
	index rules
	bound bool
	found []Finding
}

// visit looks at a value that is set. path is where it is in the types, at where in the pod. What is beneath a field that was found is not looked at.
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
			v.finding(value.MapIndex(reflect.ValueOf(key).Convert(t.Key())), entry(path, keyOf(known, key)), entry(at, key))
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

// finding notes a value whose rule says that it does not work, and reports whether it has one.
func (v *visitor) finding(value reflect.Value, path, at string) bool {
	r := v.index.find(path)
	if r != nil && v.bound {
		of := r.forBound()
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

// isUnset says whether a field was left out.
func isUnset(value reflect.Value) bool {
	switch value.Kind() {
	case reflect.Slice, reflect.Map:
		return value.Len() == 0
	default:
		return value.IsZero()
	}
}

// sortedKeys returns a map's keys, which are strings, in order.
func sortedKeys(m reflect.Value) []string {
	var out []string
	for _, key := range m.MapKeys() {
		out = append(out, key.String())
	}
	slices.Sort(out)
	return out
}
