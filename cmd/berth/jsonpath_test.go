package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/berthd/berth/client/api"
)

func TestTemplates(t *testing.T) {
	list := api.ManifestList{Items: []api.Manifest{
		{File: "a", Line: 1 << 40, Accepted: true, Warnings: []string{"x", "y"}},
		{File: "b\x1b", Errors: []api.ManifestError{{Message: "m"}}},
	}}
	for o, want := range map[output]string{
		"jsonpath={.items[*].file}":                                   "a b\x1b",
		"jsonpath={.items[0].line}":                                   "1099511627776",
		"jsonpath={.items[0].nothing}":                                "",
		"jsonpath={.items[?(@.accepted==true)].file}":                 "a",
		"jsonpath={range .items[*]}{.file}={.accepted}{\"\\n\"}{end}": "a=true\nb\x1b=false\n",
		"jsonpath={.items[1].errors[0]}":                              `{"message":"m"}`,
		"custom-columns=FILE:.file,WHAT:{.warnings[*]},ALL:errors,N:line": "FILE    WHAT     ALL               " +
			"  N\na " +
			"      x,y      <none>              1099511627776\nb\\x1b   <none>   [{\"message\":\"m\"}]   <none>\n",
	} {
		var out bytes.Buffer
		if err := o.write(&out, list); err != nil || out.String() != want {
			t.Errorf("-o %s: %v\n%q, want\n%q", o, err, out.String(), want)
		}
	}
	one := output("custom-columns=FILE:.file")
	var out bytes.Buffer
	if err := one.writeList(&out, list.Items[0], true); err != nil || out.String() != "a\n" {
		t.Errorf("one, without headings: %v, %q", err, out.String())
	}
}

func TestWrongTemplates(t *testing.T) {
	for text, want := range map[string]string{
		"jsonpath":             "the template is missing: jsonpath=TEMPLATE",
		"jsonpath=":            "the template is missing",
		"jsonpath={.a":         "unclosed action",
		"custom-columns=":      "the template is missing",
		"custom-columns=A":     `"A" is not HEADING:PATH`,
		"custom-columns=A:":    "must be the path of a field",
		"custom-columns=A:.x[": "-o custom-columns: ",
		"go-template=x":        "is not known",
		"json=x":               "is not known",
		"jsonpathx={.a}":       "is not known",
	} {
		root := newRoot()
		root.SetArgs([]string{"ps", "-o", text})
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("-o %s: %v, want %q", text, err, want)
		}
	}
}

func TestSortBy(t *testing.T) {
	type object struct {
		Name string `json:"name"`
		Key  any    `json:"key,omitempty"`
	}
	for name, c := range map[string]struct {
		field string
		keys  []any
		want  string
	}{
		"text":       {".key", []any{"b", "a", "c"}, "1 0 2"},
		"numbers":    {"{.key}", []any{10, 9, -1.5}, "2 1 0"},
		"quantities": {"key", []any{"1Gi", "2Mi", "500"}, "2 1 0"},
		"times":      {".key", []any{"2026-01-02T00:00:00Z", "2025-12-31T00:00:00Z", nil}, "2 1 0"},
		"some none":  {".key", []any{"x", nil, nil}, "1 2 0"},
		"equal":      {".key", []any{"x", "x", "x"}, "0 1 2"},
	} {
		t.Run(name, func(t *testing.T) {
			var list []object
			for i, key := range c.keys {
				list = append(list, object{string(rune('0' + i)), key})
			}
			if err := sortBy(list, c.field); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, o := range list {
				got = append(got, o.Name)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	for field, want := range map[string]string{
		"":         "must be the path",
		"{.a}{.b}": "must be the path",
		".nothing": "no object here has such a field",
		"a[":       "--sort-by",
	} {
		if err := sortBy([]object{{Name: "x"}}, field); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", field, err)
		}
	}
}
