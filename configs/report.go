package configs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Warning is about a setting that was accepted but does not do what it says.
type Warning struct {
	// Origin is "FILE:LINE" or "--FLAG"; empty if there is none.
	Origin string
	// Path is the field's JSON path; empty if the warning is not about one field.
	Path string
	// Message says what happens instead.
	Message string
}

// String returns the warning as one line, "ORIGIN: PATH: MESSAGE".
func (w Warning) String() string { return joinNonEmpty(w.Origin, w.Path, w.Message) }

// FieldError is a wrong value. [Load] returns all of them joined; errors.As finds the first one.
type FieldError struct {
	// Origin is "FILE:LINE" or "--FLAG"; empty for a default.
	Origin string
	// Path is the field's JSON path.
	Path string
	// Message says what is wrong with the value.
	Message string
}

// Error returns the error as one line, "ORIGIN: PATH: MESSAGE".
func (e *FieldError) Error() string { return joinNonEmpty(e.Origin, e.Path, e.Message) }

func joinNonEmpty(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

// report collects warnings and errors while a configuration is loaded.
type report struct {
	origins  origins
	warnings []Warning
	errs     []error
}

func (r *report) warn(kind docKind, path, format string, args ...any) {
	r.warnings = append(r.warnings, Warning{
		Origin:  r.origins.near(kind, path),
		Path:    path,
		Message: fmt.Sprintf(format, args...),
	})
}

func (r *report) fail(kind docKind, path, format string, args ...any) {
	r.errs = append(r.errs,
		&FieldError{Origin: r.origins.near(kind, path), Path: path, Message: fmt.Sprintf(format, args...)})
}

func (r *report) err() error { return errors.Join(r.errs...) }

// origins has the line or flag of every value of each document, by canonical path.
type origins map[docKind]map[string]string

// at returns the origin of exactly this value.
func (o origins) at(kind docKind, path string) string { return o[kind][canonical(path)] }

// near returns the origin of this value, or of the nearest value that contains it.
func (o origins) near(kind docKind, path string) string {
	for p := canonical(path); p != ""; {
		if origin := o[kind][p]; origin != "" {
			return origin
		}
		i := strings.LastIndexByte(p, '.')
		if i < 0 {
			return ""
		}
		p = p[:i]
	}
	return ""
}

// set records an origin and deletes the origins of the old value's parts.
func (o origins) set(kind docKind, path, origin string) {
	if o[kind] == nil {
		o[kind] = map[string]string{}
	}
	o[kind][canonical(path)] = origin
}

func (o origins) forget(kind docKind, path string) {
	p := canonical(path)
	maps.DeleteFunc(o[kind], func(k, _ string) bool { return k == p || strings.HasPrefix(k, p+".") })
}

// canonical turns "a.b[key][0]" into "a.b.key.0".
func canonical(path string) string {
	return strings.NewReplacer("[", ".", "]", "").Replace(path)
}
