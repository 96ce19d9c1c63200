package source

import (
	"strings"
	"testing"
)

// TestSyntaxLines: the line of a syntax error is the line that a person has to look at, wherever
// the document stands in its file.
func TestSyntaxLines(t *testing.T) {
	const good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"
	for name, c := range map[string]struct{ text, says string }{
		"indented too little":     {"spec:\n  containers:\n  - name: x\n   image: y # here\n", "expected key"},
		"indented too much":       {"spec:\n    a: b\n  c: d # here\n", "expected key"},
		"a colon too many":        {"a: b\nc: d: e # here\n", "mapping values"},
		"no colon":                {"spec:\n  foo\n  bar: x # here\n", "mapping values"},
		"an open list":            {"a: b\nargs: [x, y # here\nimage: z\n", "',' or ']'"},
		"an open map":             {"a: b\nlabels: {x: y # here\nimage: z\n", "',' or '}'"},
		"an open list at the end": {"a: b\nargs: [ # here", ""},
		"an open quote":           {"a: b\nc: \"d # here\ne: f\n", "end of stream"},
		"a key without a colon":   {"a: b\nfoo # here\nc: d\n", "expected ':'"},
		"a tab":                   {"a:\n\tb: c # here\n", "cannot start any token"},
		"in the first line":       {"a: [b # here\n", "',' or ']'"},
		"a list in a map":         {"a: b\n- c # here\n", "expected key"},
		"a percent sign":          {"a: b\nc: %d # here\n", "cannot start any token"},
	} {
		for before, lines := range map[string]int{"": 0, good + "---\n": strings.Count(good, "\n") + 1} {
			items := Decoder{NodeName: "n"}.Decode("f", []byte(before+c.text))
			v := items[len(items)-1].Result
			want := lines + strings.Count(c.text[:strings.Index(c.text, "# here")], "\n") + 1
			if v.Accepted || v.Line != want || !strings.Contains(v.Message, c.says) {
				t.Errorf("%s behind %d lines: line %d: %s; want line %d", name, lines, v.Line, v.Message, want)
			}
		}
	}
}

// TestSyntaxErrorsTellNoValues: what is wrong with a Secret goes into logs and events, and must not
// have what is in the Secret.
func TestSyntaxErrorsTellNoValues(t *testing.T) {
	for _, value := range []string{
		"*hunter2", "{{hunter2}}", "[[hunter2]]: x", "!!int hunter2", "!!float hunter2", "!!timestamp hunter2",
		"!!null hunter2",
		"\n    ? [hunter2]\n    : x", "!hunter2 [", "!h!hunter2 x", "%hunter2", "`hunter2", "\"\\qhunter2\"", "|hunter2",
		"&hunter2 [*hunter2]", "\n    ~: hunter2",
	} {
		text := "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\nstringData:\n  password: " + value + "\n"
		for _, item := range (Decoder{NodeName: "n"}).Decode("f", []byte(text)) {
			if v := item.Result; v.Accepted || v.Message == "" || strings.Contains(v.Message, "hunter2") {
				t.Errorf("%s: accepted %t: %s", value, v.Accepted, v.Message)
			}
		}
	}
}
