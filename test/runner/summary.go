package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one line of "go test -json" (see "go doc test2json").
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Elapsed    float64
	Output     string
}

// summary counts checks over all phases.
type summary struct {
	out     io.Writer
	passed  int
	failed  []failure
	skipped []string
}

// failure is a failed check, and how what it said begins: the end of a long output is often all that is kept of it.
type failure struct {
	name, said string
}

func newSummary(out io.Writer) *summary { return &summary{out: out} }

// pass counts a check that is no test.
func (s *summary) pass(name string) {
	s.passed++
	fmt.Fprintln(s.out, "ok  ", name)
}

// fail counts a failed check that is no test, with what it said.
func (s *summary) fail(name, output string) {
	s.failed = append(s.failed, failure{name: name, said: beginning(output)})
	fmt.Fprintf(s.out, "FAIL %s\n%s\n", name, strings.TrimRight(output, "\n"))
}

// beginning returns the first lines of an output, shortened, without those of "go test" itself. What a test complains of comes before the logs that it shows.
func beginning(output string) string {
	const most, width = 8, 300
	var kept []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if len(kept) == most {
			break
		}
		kept = append(kept, strings.ToValidUTF8(line[:min(len(line), width)], ""))
	}
	return strings.Join(kept, "\n    ")
}

// report writes the verdict. Its last line is for programs.
func (s *summary) report() error {
	if len(s.skipped) > 0 {
		fmt.Fprintf(s.out, "\n%d skipped:\n  %s\n", len(s.skipped), strings.Join(s.skipped, "\n  "))
	}
	if len(s.failed) > 0 {
		fmt.Fprintln(s.out, "\nfailed:")
		for _, f := range s.failed {
			fmt.Fprintf(s.out, "  %s\n    %s\n", f.name, f.said)
		}
	}
	fmt.Fprintf(s.out, "%d passed, %d failed\n", s.passed, len(s.failed))
	if len(s.failed) > 0 || s.passed == 0 {
		return errFailed
	}
	return nil
}

// result is what is known about one test of a package.
type result struct {
	name   string
	action string
	output strings.Builder
}

// tests collects the events of one package. Tests are in the order in which they began.
type tests struct {
	results []*result
	byName  map[string]*result
	output  strings.Builder
}

func (t *tests) of(name string) *result {
	if t.byName == nil {
		t.byName = map[string]*result{}
	}
	r := t.byName[name]
	if r == nil {
		r = &result{name: name}
		t.byName[name] = r
		t.results = append(t.results, r)
	}
	return r
}

// read takes the output of one "go test -json" until its end and counts it package by package.
func (s *summary) read(r io.Reader) error {
	packages := map[string]*tests{}
	builds := map[string]*strings.Builder{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			s.line(line, packages, builds)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the test output: %w", err)
		}
	}
	for name, p := range packages {
		// A package without a verdict was cut off.
		s.count(name, p, event{Action: "fail"})
	}
	return nil
}

func (s *summary) line(line []byte, packages map[string]*tests, builds map[string]*strings.Builder) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		fmt.Fprintf(s.out, "%s", line)
		return
	}
	if e.ImportPath != "" {
		if builds[e.ImportPath] == nil {
			builds[e.ImportPath] = &strings.Builder{}
		}
		builds[e.ImportPath].WriteString(e.Output)
		if e.Action == "build-fail" {
			fmt.Fprintf(s.out, "%s", builds[e.ImportPath])
		}
		return
	}
	p := packages[e.Package]
	if p == nil {
		p = &tests{}
		packages[e.Package] = p
	}
	switch {
	case e.Test != "" && e.Action == "output":
		p.of(e.Test).output.WriteString(e.Output)
	case e.Test != "" && slices.Contains([]string{"run", "pass", "fail", "skip"}, e.Action):
		p.of(e.Test).action = e.Action
	case e.Test == "" && e.Action == "output":
		p.output.WriteString(e.Output)
	case e.Test == "" && slices.Contains([]string{"pass", "fail", "skip"}, e.Action):
		s.count(e.Package, p, e)
		delete(packages, e.Package)
	}
}

// count adds a finished package. Tests with subtests stand for nothing by themselves, unless they failed though no subtest did; a test that
// began and has no verdict was running when the package died.
func (s *summary) count(name string, p *tests, verdict event) {
	passed, failed := 0, 0
	for _, r := range p.results {
		id := name + "." + r.name
		switch {
		case r.action == "pass" && !p.hasSubtests(r.name, ""):
			passed++
		case r.action == "skip" && !p.hasSubtests(r.name, ""):
			s.skipped = append(s.skipped, id)
		case (r.action == "fail" || r.action == "run") && !p.hasSubtests(r.name, "fail") && !p.hasSubtests(r.name, "run"):
			failed++
			s.fail(id, r.output.String())
		}
	}
	s.passed += passed
	switch {
	case verdict.Action == "fail" && failed == 0:
		s.fail(name, p.output.String())
	case verdict.Action == "fail":
		fmt.Fprintf(s.out, "FAIL %s  %d passed, %d failed\n", name, passed, failed)
	case passed > 0:
		fmt.Fprintf(s.out, "ok   %s  %d passed, %.1fs\n", name, passed, verdict.Elapsed)
	}
}

// hasSubtests tells whether a test has subtests, with that action unless it is empty.
func (t *tests) hasSubtests(name, action string) bool {
	return slices.ContainsFunc(t.results, func(r *result) bool {
		return strings.HasPrefix(r.name, name+"/") && (action == "" || r.action == action)
	})
}
