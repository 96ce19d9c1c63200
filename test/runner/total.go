package main

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
)

// total counts checks over all phases.
type total struct {
	out             io.Writer
	passed, skipped int
	failed          []failure
	took            []timing
}

// timing is a test without those that are parts of it, and how long it took, in seconds.
type timing struct {
	name    string
	seconds float64
}

// failure is a failed check and the beginning of what it said.
type failure struct {
	name, said string
}

// pass counts a check that is no test.
func (s *total) pass(name string) {
	s.passed++
	fmt.Fprintln(s.out, "PASS", name)
}

// fail counts a failed check that is no test, with what it said.
func (s *total) fail(name, output string) {
	s.failed = append(s.failed, failure{name: name, said: beginning(output)})
	fmt.Fprintf(s.out, "FAIL %s\n%s\n", name, strings.TrimRight(output, "\n"))
}

// join adds what another total has counted.
func (s *total) join(other *total) {
	s.passed += other.passed
	s.skipped += other.skipped
	s.failed = append(s.failed, other.failed...)
	s.took = append(s.took, other.took...)
}

// junit is the part of gotestsum's report that is used here.
type junit struct {
	Suites []struct {
		Name  string `xml:"name,attr"`
		Cases []struct {
			Name    string    `xml:"name,attr"`
			Time    float64   `xml:"time,attr"`
			Failure *string   `xml:"failure"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// wholePackage is the name that gotestsum gives to the failure of a package that dies, does not
// build or runs out of time.
const wholePackage = "TestMain"

// add counts the tests of a report that gotestsum wrote, and returns how many of them failed. It
// prints what packages said as a whole, which gotestsum does not; the compiler's errors are no part
// of the report.
func (s *total) add(report []byte, compiler string) (failed int, err error) {
	var r junit
	if err := xml.Unmarshal(report, &r); err != nil {
		return 0, fmt.Errorf("read the report of gotestsum: %w", err)
	}
	for _, suite := range r.Suites {
		for _, c := range suite.Cases {
			if !strings.Contains(c.Name, "/") {
				s.took = append(s.took, timing{suite.Name + "." + c.Name, c.Time})
			}
			switch {
			case c.Failure != nil && strings.Contains(*c.Failure, "[build failed]"):
				failed++
				s.failed = append(s.failed, failure{name: suite.Name, said: beginning(compiler)})
			case c.Failure != nil && c.Name == wholePackage:
				failed++
				s.fail(suite.Name, *c.Failure)
			case c.Failure != nil:
				failed++
				s.failed = append(s.failed, failure{name: suite.Name + "." + c.Name, said: beginning(*c.Failure)})
			case c.Skipped != nil:
				s.skipped++
			default:
				s.passed++
			}
		}
	}
	return failed, nil
}

// beginning returns the first lines of an output, shortened, without those of "go test" itself.
// What a test reports comes before the logs that it shows.
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

// slowest writes the tests that took longest, so that the time of all of them is kept in bounds.
func (s *total) slowest() {
	const most, least = 12, 10
	slices.SortStableFunc(s.took, func(a, b timing) int { return cmp.Compare(b.seconds, a.seconds) })
	for i, t := range s.took[:min(len(s.took), most)] {
		if t.seconds < least {
			break
		}
		if i == 0 {
			fmt.Fprintln(s.out, "slowest:")
		}
		fmt.Fprintf(s.out, "  %5.0f s  %s\n", t.seconds, t.name)
	}
}

// report writes which tests were slow, what failed and how many checks there were. Its last line is
// for programs.
func (s *total) report() error {
	s.slowest()
	if len(s.failed) > 0 {
		fmt.Fprintln(s.out, "failed:")
		for _, f := range s.failed {
			fmt.Fprintf(s.out, "  %s\n", f.name)
			if f.said != "" {
				fmt.Fprintf(s.out, "    %s\n", f.said)
			}
		}
	}
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", s.passed, len(s.failed), s.skipped)
	if len(s.failed) > 0 || s.passed == 0 {
		return errFailed
	}
	return nil
}
