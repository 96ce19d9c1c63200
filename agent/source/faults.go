package source

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berthd/berth/internal/plural"
)

// maxFaults is how many faults of one object a validation result reports.
const maxFaults = 50

// Fault is one thing that is wrong with an object.
type Fault struct {
	// Line is the line in the file, from 1. It is 0 if the fault has no line.
	Line int
	// Field is the path of the wrong field. It is empty if the fault is about no field.
	Field string
	// Message says what is wrong: the field, then upstream's text.
	Message string
}

// fault returns a fault of one field.
func (e element) fault(path, message string) Fault {
	return Fault{Line: e.line(path), Field: path, Message: message}
}

// several returns one problem for faults, in the order of their lines; nil for no faults.
func several(faults []Fault) *problem {
	if len(faults) == 0 {
		return nil
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	first := faults[0]
	if more := len(faults) - maxFaults; more > 0 {
		faults = append(faults[:maxFaults:maxFaults],
			Fault{Line: first.Line, Message: "and " + plural.Of(more, "more error")})
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
		if at.Field == "[]" { // upstream's field of an object that is too large as a whole
			at.Field = "data"
		}
		key := fmt.Sprintf("%s %v", at.Field, err.BadValue)
		at.Field = e.indexed(at.Field, err.BadValue, seen[key])
		seen[key]++
		faults = append(faults, e.fault(at.Field, textOf(&at)))
	}
	return faults
}

// textOf returns the error in upstream's words, without values in Go's syntax. It writes lists and
// maps of plain values as JSON, and leaves structs out.
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
	return t.Kind() == reflect.String || t.Kind() == reflect.Bool ||
		reflect.Int <= t.Kind() && t.Kind() <= reflect.Float64
}

// Text returns everything that is wrong in one text of about limit bytes. It has the first fault's
// message, and then as many of the others, with their lines, as fit.
func (v *Result) Text(limit int) string {
	var out strings.Builder
	out.WriteString(v.Message)
	for i := 1; i < len(v.Faults); i++ {
		f := &v.Faults[i]
		text := "; " + f.Message
		if f.Line > 0 {
			text = fmt.Sprintf("; line %d: %s", f.Line, f.Message)
		}
		if out.Len()+len(text) > limit {
			out.WriteString("; and " + plural.Of(len(v.Faults)-i, "more error"))
			break
		}
		out.WriteString(text)
	}
	return out.String()
}
