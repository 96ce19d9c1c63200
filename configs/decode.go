package configs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// decode converts merged values to the struct that into points to. As the kubelet does, it warns
// about unknown fields and leaves them out. A value of the wrong type is an error with its own
// path.
func decode(kind docKind, fields map[string]any, into any, r *report) {
	c := conformer{kind: kind, report: r}
	clean, ok := c.conform(fields, reflect.TypeOf(into).Elem(), nil)
	if !ok {
		return
	}
	data, err := json.Marshal(clean)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("decode %s: %w", kind, err))
	}
}

// conformer makes JSON values fit a Go type.
type conformer struct {
	kind   docKind
	report *report
}

// conform returns the value without unknown fields, and whether all the rest is valid.
func (c conformer) conform(value any, t reflect.Type, path *field.Path) (any, bool) {
	if value == nil {
		return nil, true
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	custom := reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
	switch object, isObject := value.(map[string]any); {
	case isObject && !custom && t.Kind() == reflect.Struct:
		return c.structFields(object, t, path)
	case isObject && !custom && t.Kind() == reflect.Map:
		return c.mapValues(object, t.Elem(), path)
	}
	if list, isList := value.([]any); isList && !custom && t.Kind() == reflect.Slice {
		return c.listItems(list, t.Elem(), path)
	}
	if err := tryUnmarshal(value, t); err != nil {
		c.report.fail(c.kind, path.String(), "%s", describeMismatch(value, t, err))
		return nil, false
	}
	return value, true
}

func (c conformer) structFields(object map[string]any, t reflect.Type, path *field.Path) (any, bool) {
	known := jsonFields(t)
	out, fits := map[string]any{}, true
	for name, value := range object {
		p := childPath(path, name)
		ft, ok := known[name]
		if !ok {
			c.report.warn(c.kind, p.String(), "unknown field of %s, ignored%s", c.kind, suggestion(name, known))
			continue
		}
		v, ok := c.conform(value, ft, p)
		out[name], fits = v, fits && ok
	}
	return out, fits
}

func (c conformer) mapValues(object map[string]any, t reflect.Type, path *field.Path) (any, bool) {
	out, fits := map[string]any{}, true
	for key, value := range object {
		v, ok := c.conform(value, t, path.Key(key))
		out[key], fits = v, fits && ok
	}
	return out, fits
}

func (c conformer) listItems(list []any, t reflect.Type, path *field.Path) (any, bool) {
	out, fits := make([]any, len(list)), true
	for i, value := range list {
		v, ok := c.conform(value, t, path.Index(i))
		out[i], fits = v, fits && ok
	}
	return out, fits
}

func childPath(path *field.Path, name string) *field.Path {
	if path == nil {
		return field.NewPath(name)
	}
	return path.Child(name)
}

// jsonFields returns the type of each field by its JSON name, including the fields of inlined
// structs.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for f := range fieldsOf(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && f.Anonymous:
			for n, ft := range jsonFields(f.Type) {
				out[n] = ft
			}
		default:
			out[name] = f.Type
		}
	}
	return out
}

func fieldsOf(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

func suggestion(name string, known map[string]reflect.Type) string {
	for k := range known {
		if strings.EqualFold(k, name) {
			return fmt.Sprintf(" (did you mean %q?)", k)
		}
	}
	return ""
}

func tryUnmarshal(value any, t reflect.Type) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.NewDecoder(bytes.NewReader(data)).Decode(reflect.New(t).Interface())
}

// describeMismatch describes a wrong value in the user's terms.
func describeMismatch(value any, t reflect.Type, err error) string {
	data, _ := json.Marshal(value)
	if len(data) > 100 {
		data = append(data[:100], "…"...)
	}
	var want string
	switch t.Kind() {
	case reflect.Bool:
		want = "true or false"
	case reflect.String:
		want = "a string"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32:
		want = "a whole number in the range of " + t.Kind().String()
	case reflect.Float64:
		want = "a number"
	case reflect.Slice:
		want = "a list"
	case reflect.Map, reflect.Struct:
		want = "an object"
	}
	switch {
	case t == reflect.TypeFor[metav1.Duration]():
		want = `a duration such as "1m30s"`
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return fmt.Sprintf("invalid value %s: %v", data, err)
	}
	return fmt.Sprintf("invalid value %s: must be %s", data, want)
}
