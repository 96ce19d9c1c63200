package fields

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ParseMark returns the mark for a name on a command line: the mark itself, or "where", "no-effect"
// and the like. The error lists the known names.
func ParseMark(name string) (Mark, error) {
	for mark, short := range map[Mark][]string{WorksWhere: {"works-where", "where"}, NoEffect: {"no-effect"}} {
		if slices.Contains(short, name) {
			return mark, nil
		}
	}
	if i := slices.Index(Marks(), Mark(name)); i >= 0 {
		return Marks()[i], nil
	}
	return "", fmt.Errorf("mark %q is not known: use works, works-where, no-effect or refused", name)
}

// Select returns the fields with one of the marks (all marks if none is given) that match one of
// the paths (all paths if none is given). A path matches itself and everything below it. A path may
// lack "spec." and indexes, and it may have the indexes of a pod: "containers.image" and
// "spec.containers[0].image" are the same. A path that does not begin at the top, such as
// "seccompProfile", matches all fields of that name.
func Select(list []Field, marks []Mark, paths []string) []Field {
	var out []Field
	for _, f := range list {
		if (len(marks) == 0 || slices.Contains(marks, f.Mark)) &&
			(len(paths) == 0 || slices.ContainsFunc(paths, f.about)) {
			out = append(out, f)
		}
	}
	return out
}

// about reports whether the field matches a path that a user wrote.
func (f Field) about(path string) bool {
	at, path := plain(f.Path), plain(path)
	if within(path, "spec") || within(path, "metadata") {
		return within(at, path)
	}
	return strings.Contains("."+at+".", "."+path+".")
}

var indexes = regexp.MustCompile(`\[(\*|\d+)\]`)

// plain returns a path without indexes.
func plain(path string) string { return strings.Trim(indexes.ReplaceAllString(path, ""), ".") }
