package show

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/client/api"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain":               "plain",
		"two\nlines\there":    "two lines here",
		"\x1b[31mred\x07":     `\x1b[31mred\x07`,
		"right \u202eto left": `right \x202eto left`,
		"  trimmed\n":         "trimmed",
		"ünï":                 "ünï",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		500 * time.Microsecond: "<1ms", 12 * time.Millisecond: "12ms", 1234 * time.Millisecond: "1.23s", 90 * time.Second: "1m30s",
	} {
		if got := Took(d); got != want {
			t.Errorf("Took(%s) = %s, want %s", d, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0B", 999: "999B", 1000: "1.0kB", 2_100_000: "2.1MB", 999_999: "1.0MB", 250_000_000: "250MB", 1 << 63: "9223372TB"} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %s, want %s", n, got, want)
		}
	}
	now := time.Now()
	if got := Age(now, time.Time{}); got != "<unknown>" {
		t.Errorf("no age: %s", got)
	}
}

func TestWidthsGrow(t *testing.T) {
	widths := (&Table{Headings: []string{"A", "BB"}, Rows: [][]string{{"xyz", "1"}}}).Widths()
	for _, tc := range []struct {
		row  []string
		want string
	}{
		{[]string{"a", "b", "c"}, "a     b    c"},
		{[]string{"longer", "b", ""}, "longer   b"},
		{[]string{"a", "b", "c"}, "a        b    c"},
	} {
		if got := widths.Line(tc.row); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.row, got, tc.want)
		}
	}
}

func TestSplitTag(t *testing.T) {
	for ref, want := range map[string][2]string{
		"a:1": {"a", "1"}, "reg:5000/a": {"reg:5000/a", ""}, "reg:5000/a:2": {"reg:5000/a", "2"}, "": {"", ""},
	} {
		if name, tag := splitTag(ref); name != want[0] || tag != want[1] {
			t.Errorf("%s: %s %s", ref, name, tag)
		}
	}
}

func TestVerdicts(t *testing.T) {
	var out bytes.Buffer
	Verdicts(&out, []api.Manifest{
		{File: "a", Line: 3, Kind: "Pod", Namespace: "n", Name: "p", Accepted: true, Warnings: []string{"unknown field"}},
		{File: "b", Message: "the manifest is empty"},
		{File: "c", Line: 1, Kind: "Pod", Field: "spec.x", Message: "wrong"},
	})
	want := `a:3: Pod n/p: ok
a:3: Pod n/p: warning: unknown field
b: error: the manifest is empty
c:1: Pod: error: spec.x: wrong
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}

func TestWhyOfRetries(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)
	soon, past := now.Add(1500*time.Millisecond), now.Add(-time.Second)
	for at, want := range map[*time.Time]string{&soon: "Next retry:  in 1.5s\n", &past: "Next retry:  now\n"} {
		var out bytes.Buffer
		why := &api.Why{Namespace: "n", Name: "p", Status: "Pending", WaitsFor: "x", NextRetry: at, LastError: &api.Failure{Step: "s", Message: "m", Last: now, Count: 1, Overcome: true}}
		if err := Why(&out, why, now); err != nil || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "Last error:  s, 0s ago, overcome since: m\n") {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
}
