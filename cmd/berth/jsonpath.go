package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/berthd/berth/client/show"
)

// printer prints a value of plainOf with a template.
type printer interface {
	print(w io.Writer, value any, noHeaders bool) error
}

// plainOf converts a value to its JSON form: maps, lists, strings and numbers (int64 for whole
// numbers).
func plainOf(value any) (plain any, err error) {
	data, err := json.Marshal(value)
	if err == nil {
		err = utiljson.Unmarshal(data, &plain)
	}
	if err != nil {
		return nil, fmt.Errorf("making a value plain: %w", err)
	}
	return plain, nil
}

// template is an upstream JSONPath template. A missing key prints nothing.
type template struct{ path *jsonpath.JSONPath }

// newTemplate parses a template; flag is the flag that it was given with.
func newTemplate(flag, text string) (template, error) {
	p := jsonpath.New(flag).AllowMissingKeys(true)
	if err := p.Parse(text); err != nil {
		return template{}, fmt.Errorf("%s: %w", flag, err)
	}
	return template{p}, nil
}

// newField parses the path of a field in the forms of kubectl's --sort-by and custom-columns:
// {.a.b}, .a.b or a.b.
func newField(flag, field string) (template, error) {
	bare := field
	if inside, ok := strings.CutPrefix(bare, "{"); ok {
		bare = strings.TrimSuffix(inside, "}")
	}
	if bare = strings.TrimPrefix(bare, "."); bare == "" || strings.ContainsAny(bare, "{}") {
		return template{}, wrongly("%s %s: must be the path of a field, such as .metadata.name", flag, field)
	}
	return newTemplate(flag, "{."+bare+"}")
}

func (t template) print(w io.Writer, value any, _ bool) error { return t.path.Execute(w, value) }

// find returns the values at the path.
func (t template) find(value any) ([]any, error) {
	sets, err := t.path.FindResults(value)
	if err != nil {
		return nil, err
	}
	var out []any
	for _, set := range sets {
		for _, v := range set {
			if v.IsValid() && v.CanInterface() && v.Interface() != nil {
				out = append(out, v.Interface())
			}
		}
	}
	return out, nil
}

// columns are the headings and fields of custom-columns.
type columns struct {
	headings []string
	fields   []template
}

// newColumns parses HEADING:PATH,...
func newColumns(text string) (columns, error) {
	var c columns
	for _, part := range strings.Split(text, ",") {
		heading, field, ok := strings.Cut(part, ":")
		if !ok || heading == "" {
			return c, fmt.Errorf("-o %s: %q is not HEADING:PATH, such as NAME:.metadata.name", formatColumns, part)
		}
		p, err := newField("-o "+formatColumns, field)
		if err != nil {
			return c, err
		}
		c.headings, c.fields = append(c.headings, heading), append(c.fields, p)
	}
	return c, nil
}

// print writes a row for each item of a list, or one row for any other value.
func (c columns) print(w io.Writer, value any, noHeaders bool) error {
	t := &show.Table{Headings: c.headings}
	if noHeaders {
		t.Headings = nil
	}
	for _, item := range itemsOf(value) {
		var row []string
		for _, field := range c.fields {
			found, err := field.find(item)
			if err != nil {
				return fmt.Errorf("-o %s: %w", formatColumns, err)
			}
			var texts []string
			for _, v := range found {
				texts = append(texts, textOf(v))
			}
			row = append(row, cmp.Or(strings.Join(texts, ","), "<none>"))
		}
		t.Add(row...)
	}
	return t.Write(w)
}

// itemsOf returns the items of a list. The list may be an object with items.
func itemsOf(value any) []any {
	switch v := value.(type) {
	case []any:
		return v
	case map[string]any:
		if items, ok := v["items"].([]any); ok {
			return items
		}
	}
	return []any{value}
}

// textOf formats a value for a cell: maps and lists as JSON.
func textOf(value any) string {
	switch value.(type) {
	case map[string]any, []any:
		if data, err := json.Marshal(value); err == nil {
			return string(data)
		}
	}
	return fmt.Sprint(value)
}

// errNoField is the error of sorting by a path that no object has.
var errNoField = errors.New("no object here has such a field")

// sortBy sorts objects by the field at a path. Objects without the field come first.
func sortBy[T any](list []T, field string) error {
	p, err := newField("--sort-by", field)
	if err != nil || len(list) == 0 {
		return err
	}
	type keyed struct {
		key    any
		object T
	}
	all, found := make([]keyed, len(list)), false
	for i := range list {
		plain, err := plainOf(list[i])
		if err != nil {
			return err
		}
		values, err := p.find(plain)
		if err != nil {
			return fmt.Errorf("--sort-by %s: %w", field, err)
		}
		if all[i].object = list[i]; len(values) > 0 {
			all[i].key, found = values[0], true
		}
	}
	if !found {
		return fmt.Errorf("--sort-by %s: %w", field, errNoField)
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return compareKeys(a.key, b.key) })
	for i := range all {
		list[i] = all[i].object
	}
	return nil
}

// compareKeys compares two values of a field: numbers and quantities by size, all others as text. A
// missing value comes first.
func compareKeys(a, b any) int {
	if a == nil || b == nil {
		switch {
		case a == nil && b == nil:
			return 0
		case a == nil:
			return -1
		}
		return 1
	}
	x, errX := resource.ParseQuantity(textOf(a))
	y, errY := resource.ParseQuantity(textOf(b))
	if errX == nil && errY == nil {
		return x.Cmp(y)
	}
	return strings.Compare(textOf(a), textOf(b))
}
