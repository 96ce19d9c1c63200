package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestSummaryCounts(t *testing.T) {
	for _, tc := range []struct {
		name            string
		events          string
		passed, skipped int
		failed          []string
	}{
		{
			name: "plain tests",
			events: `{"Action":"run","Package":"p","Test":"A"}
{"Action":"pass","Package":"p","Test":"A"}
{"Action":"run","Package":"p","Test":"B"}
{"Action":"skip","Package":"p","Test":"B"}
{"Action":"pass","Package":"p"}`,
			passed: 1, skipped: 1,
		},
		{
			name: "a parent counts through its subtests",
			events: `{"Action":"run","Package":"p","Test":"A"}
{"Action":"run","Package":"p","Test":"A/x"}
{"Action":"run","Package":"p","Test":"A/y"}
{"Action":"pass","Package":"p","Test":"A/x"}
{"Action":"fail","Package":"p","Test":"A/y"}
{"Action":"fail","Package":"p","Test":"A"}
{"Action":"fail","Package":"p"}`,
			passed: 1, failed: []string{"p.A/y"},
		},
		{
			name: "a parent that fails by itself counts",
			events: `{"Action":"run","Package":"p","Test":"A"}
{"Action":"run","Package":"p","Test":"A/x"}
{"Action":"pass","Package":"p","Test":"A/x"}
{"Action":"fail","Package":"p","Test":"A"}
{"Action":"fail","Package":"p"}`,
			passed: 1, failed: []string{"p.A"},
		},
		{
			name: "a package that does not build",
			events: `{"ImportPath":"p [p.test]","Action":"build-output","Output":"oops\n"}
{"ImportPath":"p [p.test]","Action":"build-fail"}
{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Output":"FAIL p [build failed]\n"}
{"Action":"fail","Package":"p"}`,
			failed: []string{"p"},
		},
		{
			name: "a test that was running when the package died",
			events: `{"Action":"run","Package":"p","Test":"A"}
{"Action":"pass","Package":"p","Test":"A"}
{"Action":"run","Package":"p","Test":"B"}
{"Action":"run","Package":"p","Test":"B/x"}
{"Action":"output","Package":"p","Test":"B/x","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p"}`,
			passed: 1, failed: []string{"p.B/x"},
		},
		{
			name:   "an output that breaks off",
			events: `{"Action":"start","Package":"p"}`,
			failed: []string{"p"},
		},
		{
			name: "a package that fails though its tests passed",
			events: `{"Action":"run","Package":"p","Test":"A"}
{"Action":"pass","Package":"p","Test":"A"}
{"Action":"output","Package":"p","Output":"found unexpected goroutines\n"}
{"Action":"fail","Package":"p"}`,
			passed: 1, failed: []string{"p"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSummary(io.Discard)
			if err := s.read(strings.NewReader(tc.events)); err != nil {
				t.Fatal(err)
			}
			var failed []string
			for _, f := range s.failed {
				failed = append(failed, f.name)
			}
			if s.passed != tc.passed || len(s.skipped) != tc.skipped || !slices.Equal(failed, tc.failed) {
				t.Errorf("passed %d, skipped %v, failed %v", s.passed, s.skipped, s.failed)
			}
		})
	}
}

func TestReport(t *testing.T) {
	for _, tc := range []struct {
		name   string
		fill   func(*summary)
		last   string
		failed bool
	}{
		{"nothing ran", func(*summary) {}, "0 passed, 0 failed", true},
		{"all passed", func(s *summary) { s.pass("x") }, "1 passed, 0 failed", false},
		{"one failed", func(s *summary) { s.pass("x"); s.fail("y", "why") }, "1 passed, 1 failed", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			s := newSummary(&out)
			tc.fill(s)
			err := s.report()
			if errors.Is(err, errFailed) != tc.failed {
				t.Errorf("error %v", err)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if lines[len(lines)-1] != tc.last {
				t.Errorf("last line %q, want %q", lines[len(lines)-1], tc.last)
			}
		})
	}
}

// TestReportTellsWhy: who sees but the end of the output sees what each failed test complained of, though it showed a log after it.
func TestReportTellsWhy(t *testing.T) {
	var out strings.Builder
	s := newSummary(&out)
	s.fail("p.A", "=== RUN   A\n    a_test.go:7: it is 3, want 4\n"+strings.Repeat("    a_test.go:9: a log\n", 1000)+"--- FAIL: A (0.00s)\n")
	_ = s.report()
	tail := out.String()[out.Len()-400:]
	if !strings.Contains(tail, "p.A\n    a_test.go:7: it is 3, want 4\n") {
		t.Errorf("the end of the output:\n%s", tail)
	}
}

// TestTimeOver: the end of its time is no failure of a fuzz target, whatever "go test" calls it; an input that fails is.
func TestTimeOver(t *testing.T) {
	const over = "fuzz: elapsed: 2s, execs: 100 (50/sec)\n--- FAIL: FuzzX (2.06s)\n    context deadline exceeded\nFAIL\nexit status 1\n"
	for out, want := range map[string]bool{
		over: true,
		"--- FAIL: FuzzX (0.50s)\n    --- FAIL: FuzzX (0.00s)\n        x_test.go:7: context deadline exceeded\n    \n    Failing input written to testdata/fuzz/FuzzX/1\n": false,
		"--- FAIL: FuzzX (2.06s)\n    context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzX/1\n":                                                     false,
		"ok  	p	2.1s\n": false,
	} {
		if got := timeOver([]byte(out)); got != want {
			t.Errorf("%t, want %t, of %q", got, want, out)
		}
	}
}
