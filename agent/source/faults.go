package source

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxFaults is how many of an object's faults a verdict tells.
const maxFaults = 50

// Fault is one thing that is wrong with an object.
type Fault struct {
	// Line is in the file, from 1; 0 if it is about no line.
	Line int
	// Field is the path of the field that is wrong; empty if it is about none.
	Field string
	// Message says what is wrong, with upstream's words and the field in front.
	Message string
}

// fault is a problem with one field.
func (e element) fault(path, message string) Fault {
	return Fault{Line: e.line(path), Field: path, Message: message}
}

// several makes one problem of faults, in their order; nil of none.
func several(faults []Fault) *problem {
	if len(faults) == 0 {
		return nil
	}
	first := faults[0]
	if more := len(faults) - maxFaults; more > 0 {
		faults = append(faults[:maxFaults:maxFaults], Fault{Line: first.Line, Message: fmt.Sprintf("and %d more errors", more)})
	}
	return &problem{line: first.Line, field: first.Field, message: first.Message, all: faults}
}

// fieldProblem turns upstream's list of invalid fields into a problem.
func (e element) fieldProblem(errs field.ErrorList) *problem { return several(e.fieldFaults(errs)) }

// fieldFaults turns upstream's list of invalid fields into faults.
func (e element) fieldFaults(errs field.ErrorList) []Fault {
	var faults []Fault
	seen := map[string]int{}
	for _, err := range errs {
		at := *err
		key := fmt.Sprintf("%s %v", err.Field, err.BadValue)
		at.Field = e.indexed(err.Field, err.BadValue, seen[key])
		seen[key]++
		faults = append(faults, e.fault(at.Field, textOf(&at)))
	}
	return faults
}

// textOf is the error as upstream writes it, without values in Go's syntax: lists and maps of plain values are written as JSON, structs are left out.
func textOf(err *field.Error) string {
	value := reflect.ValueOf(err.BadValue)
	if !value.IsValid() {
		return err.Error()
	}
	for value.Kind() == reflect.Pointer && !value.IsNil() {
		if _, ok := value.Interface().(fmt.Stringer); ok {
			return err.Error()
		}
		value = value.Elem()
	}
	if _, ok := value.Interface().(fmt.Stringer); ok {
		return err.Error()
	}
	switch value.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Array:
	default:
		return err.Error()
	}
	if value.Kind() != reflect.Struct && plain(value.Type().Elem()) {
		if text, failed := json.Marshal(value.Interface()); failed == nil {
			return fmt.Sprintf("%s: %s: %s: %s", err.Field, err.Type, text, err.Detail)
		}
	}
	if err.Detail == "" {
		return fmt.Sprintf("%s: %s", err.Field, err.Type)
	}
	return fmt.Sprintf("%s: %s: %s", err.Field, err.Type, err.Detail)
}

func plain(t reflect.Type) bool {
	return t.Kind() == reflect.String || t.Kind() == reflect.Bool || reflect.Int <= t.Kind() && t.Kind() <= reflect.Float64
}

// Text is all that is wrong in one text: the first fault's message, and the others with their lines, as many as fit into about limit bytes.
func (v *Verdict) Text(limit int) string {
	var out strings.Builder
	out.WriteString(v.Message)
	for i := 1; i < len(v.Faults); i++ {
		f := &v.Faults[i]
		text := "; " + f.Message
		if f.Line > 0 {
			text = fmt.Sprintf("; line %d: %s", f.Line, f.Message)
		}
		if out.Len()+len(text) > limit {
			fmt.Fprintf(&out, "; and %d more errors", len(v.Faults)-i)
			break
		}
		out.WriteString(text)
	}
	return out.String()
}
