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

func TestCleanLines(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                    "plain",
		"two\n  lines\n\n\tmore\n": "two\n  lines\n\n\tmore\n",
		"a\x1b[2J\n \x1b]0;b\x07":  `a\x1b[2J` + "\n" + ` \x1b]0;b\x07`,
		"over\rwritten":            "over written",
	} {
		if got := CleanLines(in); got != want {
			t.Errorf("CleanLines(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		500 * time.Microsecond:  "<1ms",
		12 * time.Millisecond:   "12ms",
		1234 * time.Millisecond: "1.23s",
		90 * time.Second:        "1m30s",
	} {
		if got := Took(d); got != want {
			t.Errorf("Took(%s) = %s, want %s", d, got, want)
		}
	}
	for n, want := range map[uint64]string{
		0:           "0B",
		999:         "999B",
		1000:        "1.0kB",
		2_100_000:   "2.1MB",
		999_999:     "1.0MB",
		250_000_000: "250MB",
		1 << 63:     "9223372TB",
	} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %s, want %s", n, got, want)
		}
	}
	now := time.Now()
	if got := Age(now, time.Time{}); got != "<unknown>" {
		t.Errorf("no age: %s", got)
	}
}

func TestProgress(t *testing.T) {
	for _, tc := range []struct {
		done, total int64
		want        string
	}{
		{0, 0, "-"},
		{5, 0, "-"},
		{0, 45_000_000, "0% of 45.0MB"},
		{12_500_000, 45_000_000, "27% of 45.0MB"},
		{44_999_999, 45_000_000, "99% of 45.0MB"},
		{45_000_000, 45_000_000, "100% of 45.0MB"},
		{90_000_000, 45_000_000, "100% of 45.0MB"},
		{-1, 10, "0% of 10B"},
		{1 << 56, 1 << 56, "100% of 72058TB"},
	} {
		if got := Progress(api.Pull{Done: tc.done, Total: tc.total}); got != tc.want {
			t.Errorf("%d of %d: %q, want %q", tc.done, tc.total, got, tc.want)
		}
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

func TestValidated(t *testing.T) {
	var out bytes.Buffer
	Validated(&out, []api.Manifest{
		{
			File:      "a",
			Line:      3,
			Kind:      "Pod",
			Namespace: "n",
			Name:      "p",
			Accepted:  true,
			Warnings:  []string{"line 5: unknown field", "it belongs to user 1"},
		},
		{File: "b", Message: "the manifest is empty"},
		{File: "c", Line: 1, Kind: "Pod", Field: "spec.x", Message: "wrong"},
		{
			File:    "e",
			Line:    2,
			Kind:    "Pod",
			Field:   "spec.x",
			Message: "spec.x: wrong",
			Errors: []api.ManifestError{
				{Line: 2, Field: "spec.x", Message: "spec.x: wrong"},
				{Line: 9, Field: "spec.y", Message: "bad"},
				{Message: "and 3 more errors"},
			},
		},
		{File: "d", Accepted: true, Warnings: []string{"no manifests in d"}},
	})
	want := `a:3: Pod n/p: ok
a:3: Pod n/p: warning: it belongs to user 1
a:5: Pod n/p: warning: unknown field
b: error: the manifest is empty
c:1: Pod: error: spec.x: wrong
e:2: Pod: error: spec.x: wrong
e:9: Pod: error: spec.y: bad
e: Pod: error: and 3 more errors
d: warning: no manifests in d
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
		why := &api.Why{
			Namespace:  "n",
			Name:       "p",
			Status:     "Pending",
			WaitsFor:   "x",
			NextRetry:  at,
			LastError:  &api.Failure{Step: "s", Container: "c", Message: "m", Last: now, Count: 1, Overcome: true},
			LastChange: &api.Edit{Message: "ConfigMap x changed", At: now.Add(-time.Minute)},
		}
		if err := Why(&out, why, now); err != nil || !strings.Contains(out.String(), want) ||
			!strings.Contains(out.String(), "Last error:  s of container c, 0s ago, overcome since: m\n"+
				"Last change: 60s ago: ConfigMap x changed\n") {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
}

func TestWhyOfFailed(t *testing.T) {
	for want, why := range map[string]api.Why{
		"n/p is Error and waits for nothing. It failed: container c ended with exit code 3 (Error)\n": {
			Namespace: "n", Name: "p", Status: "Error", Ended: "container c ended with exit code 3 (Error)",
		},
		"n/p is Error and waits for: c to end\nFailed:      because\n": {
			Namespace: "n",
			Name:      "p",
			Status:    "Error",
			WaitsFor:  "c to end",
			Ended:     "because",
		},
	} {
		var out bytes.Buffer
		if err := Why(&out, &why, time.Now()); err != nil || out.String() != want {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
}

// TestManifestsOnce checks that an object whose earlier version is used has one row, whether its
// current version is refused early or late. An object whose file cannot be read has a row of its
// own.
func TestManifestsOnce(t *testing.T) {
	list := []api.Manifest{
		{File: "a", Kind: "Pod", Namespace: "default", Name: "late-n", Line: 3, Message: "wrong"},
		{File: "a", Document: 2, Kind: "Pod", Name: "early", Message: "wrong, too"},
		{File: "b", Kind: "Pod", Namespace: "default", Name: "late-n", Message: "duplicate"},
		{File: "c", Message: "not valid YAML"},
		{File: "d", Kind: "Pod", Namespace: "default", Name: "fine-n", Accepted: true},
		{
			File:      "a",
			Kind:      "Pod",
			Namespace: "default",
			Name:      "late-n",
			UID:       "1",
			Accepted:  true,
			Kept:      true,
			Warnings:  []string{"stays"},
		},
		{
			File:      "a",
			Kind:      "Pod",
			Namespace: "default",
			Name:      "early-n",
			UID:       "2",
			Accepted:  true,
			Kept:      true,
			Warnings:  []string{"stays"},
		},
		{
			File:      "c",
			Kind:      "Pod",
			Namespace: "default",
			Name:      "unread-n",
			UID:       "3",
			Accepted:  true,
			Kept:      true,
			Warnings:  []string{"stays"},
		},
	}
	var out bytes.Buffer
	if err := Manifests(&api.ManifestList{Items: list}, false, time.Now()).Write(&out); err != nil {
		t.Fatal(err)
	}
	want := `FILE   KIND     NAME       VERDICT         MESSAGE
a      Pod      late-n     refused, kept   line 3: wrong; warning: stays
a#2    Pod      early-n    refused, kept   wrong, too; warning: stays
b      Pod      late-n     refused         duplicate
c      <none>   <none>     refused         not valid YAML
d      Pod      fine-n     accepted
c      Pod      unread-n   kept            warning: stays
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	if list[0].Kept || list[1].Name != "early" {
		t.Error("the list was changed")
	}
}

func TestWhyIsGrouped(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)
	step := func(name, message string) api.Step {
		return api.Step{Step: name, Begin: now, End: now, Last: now, Count: 1, Outcome: api.Done, Message: message}
	}
	var out bytes.Buffer
	why := &api.Why{Namespace: "n", Name: "p", Status: "Running", Steps: []api.Step{
		step("admit", "first"), step("images", "old"), step("admit", "again"), step("images", "new"),
	}}
	if err := Why(&out, why, now); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(out.String(), "\n\n")
	if len(parts) != 3 || !strings.HasPrefix(parts[1], "The last attempt at each step:\nBEGAN") ||
		!strings.HasPrefix(parts[2], "Before that:\nBEGAN") ||
		!strings.Contains(parts[1], "again") || !strings.Contains(parts[1], "new") ||
		!strings.Contains(parts[2], "first") || !strings.Contains(parts[2], "old") {
		t.Errorf("%s", out.String())
	}
}
