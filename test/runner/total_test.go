package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// reported is what gotestsum writes of a package with a failed subtest, one that dies, one that
// does not build, and one with a skipped test.
const reported = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="10" failures="4" errors="1">
	<testsuite name=""></testsuite>
	<testsuite name="x/fails">
		<testcase classname="x/fails" name="TestA/x">
			<failure message="Failed" type="">=== RUN   TestA/x&#xA;    a_test.go:3: it fails&#xA;--- FAIL: TestA/x (0.00s)&#xA;</failure>
		</testcase>
		<testcase classname="x/fails" name="TestA">
			<failure message="Failed" type="">=== RUN   TestA&#xA;--- FAIL: TestA (0.00s)&#xA;</failure>
		</testcase>
		<testcase classname="x/fails" name="TestA/y"></testcase>
	</testsuite>
	<testsuite name="x/exits">
		<testcase classname="" name="TestMain">
			<failure message="Failed" type="">PASS&#xA;left goroutines&#xA;</failure>
		</testcase>
		<testcase classname="x/exits" name="TestA"></testcase>
	</testsuite>
	<testsuite name="x/nobuild">
		<testcase classname="" name="TestMain">
			<failure message="Failed" type="">FAIL&#x9;x/nobuild [build failed]&#xA;</failure>
		</testcase>
	</testsuite>
	<testsuite name="x/ok">
		<testcase classname="x/ok" name="TestS"><skipped message="no"></skipped></testcase>
		<testcase classname="x/ok" name="TestA" time="12.6"></testcase>
		<testcase classname="x/ok" name="TestB" time="130.1"></testcase>
		<testcase classname="x/ok" name="TestB/x" time="110"></testcase>
		<testcase classname="x/ok" name="TestC" time="9"></testcase>
	</testsuite>
</testsuites>`

func TestTotal(t *testing.T) {
	var out strings.Builder
	s := &total{out: &out}
	s.pass("a linter")
	failed, err := s.add([]byte(reported), "nobuild/a_test.go:3:27: undefined: undefined\n")
	if err != nil || failed != 4 {
		t.Fatalf("%d failed, %v", failed, err)
	}
	if !strings.Contains(out.String(), "left goroutines\n") {
		t.Errorf("what a package said as a whole is not shown: %q", out.String())
	}
	out.Reset()
	if err := s.report(); !errors.Is(err, errFailed) {
		t.Errorf("the report ends with %v", err)
	}
	want := `slowest:
    130 s  x/ok.TestB
     13 s  x/ok.TestA
failed:
  x/fails.TestA/x
    a_test.go:3: it fails
  x/fails.TestA
  x/exits
    PASS
    left goroutines
  x/nobuild
    nobuild/a_test.go:3:27: undefined: undefined
7 passed, 4 failed, 1 skipped
`
	if out.String() != want {
		t.Errorf("the report is\n%swant\n%s", out.String(), want)
	}
}

func TestTotalWithoutFailures(t *testing.T) {
	for checks, want := range map[int]error{0: errFailed, 2: nil} {
		var out strings.Builder
		s := &total{out: &out}
		for range checks {
			s.pass("one")
		}
		if err := s.report(); !errors.Is(err, want) {
			t.Errorf("%d checks end with %v, want %v", checks, err, want)
		}
	}
}

func TestReportThatBreaksOff(t *testing.T) {
	s := &total{out: t.Output()}
	if _, err := s.add([]byte(reported[:len(reported)/2]), ""); err == nil {
		t.Error("it was taken for a whole one")
	}
}

func TestBeginning(t *testing.T) {
	long := strings.Repeat("x", 1000)
	got := strings.Split(beginning("=== RUN   TestA\n\n  first\n"+long+"\n3\n4\n5\n6\n7\n8\n9\n"), "\n")
	if len(got) != 8 || got[0] != "first" || len(strings.TrimSpace(got[1])) != 300 {
		t.Errorf("it is %d lines: %.400q", len(got), got)
	}
}

func TestFunctions(t *testing.T) {
	got := functions([]byte("func TestA(t *testing.T) {\n}\n\nfunc helper() {}\nfunc FuzzB(f *testing.F) {\n"), "Test")
	if !slices.Equal(got, []string{"TestA"}) {
		t.Errorf("they are %v", got)
	}
}

func TestTimeOver(t *testing.T) {
	for text, want := range map[string]bool{
		"--- FAIL: FuzzA (2.01s)\n    context deadline exceeded\nFAIL\n":                           true,
		"--- FAIL: FuzzA (2.01s)\n    a_test.go:3: wrong\nFAIL\n":                                  false,
		"--- FAIL: FuzzA (2.01s)\n    context deadline exceeded\n    Failing input written to x\n": false,
	} {
		if got := timeOver([]byte(text)); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

func TestTotalsAreJoined(t *testing.T) {
	var out strings.Builder
	s := &total{out: &out, passed: 2, failed: []failure{{name: "a"}}}
	s.join(&total{passed: 3, skipped: 1, failed: []failure{{name: "b"}}})
	if err := s.report(); !errors.Is(err, errFailed) {
		t.Errorf("the report ends with %v", err)
	}
	if want := "failed:\n  a\n  b\n5 passed, 2 failed, 1 skipped\n"; out.String() != want {
		t.Errorf("reported %q, not %q", out.String(), want)
	}
}
