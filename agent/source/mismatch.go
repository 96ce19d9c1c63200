package source

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	strictjson "sigs.k8s.io/json"
)

// misfit is a value that does not fit its type: its field path, and what the value must be. misfit
// does not repeat the value, because it may be a secret, unless it was to be a quantity.
type misfit struct {
	at, message string
	// unknown means that the only problem is that the type has no such field.
	unknown bool
}

// mismatches finds the values in raw that do not fit the type t, and the fields that t does not
// have. It is for documents that the decoder refused. The decoder's own errors name Go's types, and
// name no place within lists.
func mismatches(t reflect.Type, raw json.RawMessage, path string) []misfit {
	if kindOfJSON(raw) == "null" {
		return nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return leafMismatch(t, raw, path)
	}
	switch t.Kind() {
	case reflect.Struct:
		return structMismatches(t, raw, path)
	case reflect.Map:
		return mapMismatches(t, raw, path)
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			return listMismatches(t, raw, path)
		}
	}
	return leafMismatch(t, raw, path)
}

// structMismatches looks at the fields that the type has, in the order of their names.
func structMismatches(t reflect.Type, raw json.RawMessage, path string) (out []misfit) {
	var values map[string]json.RawMessage
	if json.Unmarshal(raw, &values) != nil {
		return []misfit{{at: path, message: "must be an object, not " + article(kindOfJSON(raw))}}
	}
	fields := map[string]reflect.Type{}
	fieldsOf(t, fields)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		if field, known := fields[name]; known {
			out = append(out, mismatches(field, values[name], at)...)
		} else {
			out = append(out, misfit{at: at, message: fmt.Sprintf("unknown field %q", at), unknown: true})
		}
	}
	return out
}

// fieldsOf gathers the types of a struct's fields by their names in JSON. It includes the fields of
// embedded structs.
func fieldsOf(t reflect.Type, into map[string]reflect.Type) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "" && field.Type.Kind() == reflect.Struct:
			fieldsOf(field.Type, into)
		case name != "" && name != "-":
			into[name] = field.Type
		}
	}
}

func mapMismatches(t reflect.Type, raw json.RawMessage, path string) (out []misfit) {
	var values map[string]json.RawMessage
	if json.Unmarshal(raw, &values) != nil {
		return []misfit{{at: path, message: "must be an object, not " + article(kindOfJSON(raw))}}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		out = append(out, mismatches(t.Elem(), values[key], path+"["+key+"]")...)
	}
	return out
}

func listMismatches(t reflect.Type, raw json.RawMessage, path string) (out []misfit) {
	var values []json.RawMessage
	if json.Unmarshal(raw, &values) != nil {
		return []misfit{{at: path, message: "must be a list, not " + article(kindOfJSON(raw))}}
	}
	for i, value := range values {
		out = append(out, mismatches(t.Elem(), value, fmt.Sprintf("%s[%d]", path, i))...)
	}
	return out
}

// leafMismatch decodes one value with the decoder.
func leafMismatch(t reflect.Type, raw json.RawMessage, path string) []misfit {
	err := strictjson.UnmarshalCaseSensitivePreserveInts(raw, reflect.New(t).Interface())
	if err == nil {
		return nil
	}
	if t == reflect.TypeFor[resource.Quantity]() {
		return []misfit{{at: path, message: noQuantity(raw)}}
	}
	return []misfit{{at: path, message: leafMessage(t, kindOfJSON(raw), err)}}
}

// leafMessage says what a value of type t must be, and what it is instead. The value is a JSON
// value of a kind, and err is the decoder's error about it.
func leafMessage(t reflect.Type, kind string, err error) string {
	wanted := wantedOf(t)
	switch reflect.Zero(t).Interface().(type) {
	case intstr.IntOrString:
		wanted = "an integer or a string"
	case metav1.Time, metav1.MicroTime:
		return "must be a time as in RFC 3339, such as 2006-01-02T15:04:05Z"
	case metav1.Duration:
		return "must be a duration such as 1m30s"
	case []byte:
		if kind == "string" {
			return "must be base64: " + err.Error()
		}
		wanted = "a string in base64"
	}
	switch {
	case wanted == "":
		return "is not valid here"
	case wanted == "an integer" && kind == "number":
		return fmt.Sprintf("must be an integer of at most %d bits", t.Bits())
	case wanted == "a string" && (kind == "number" || kind == "boolean"):
		return "must be a string, not " + article(kind) + ": put it in quotes"
	}
	return "must be " + wanted + ", not " + article(kind)
}

// wantedOf names the values of a plain type. It returns "" for other types.
func wantedOf(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case reflect.Int <= t.Kind() && t.Kind() <= reflect.Uint64:
		return "an integer"
	case t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64:
		return "a number"
	}
	return ""
}

// kindOfJSON names the kind of a value. The value is valid JSON.
func kindOfJSON(raw json.RawMessage) string {
	text := strings.TrimSpace(string(raw))
	if text == "" {
		return "null"
	}
	switch text[0] {
	case '{':
		return "object"
	case '[':
		return "list"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

func article(noun string) string {
	if noun == "object" {
		return "an object"
	}
	return "a " + noun
}
