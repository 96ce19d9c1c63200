package docs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// resultsFile is what "make bench" writes.
const resultsFile = "test/bench/results.md"

// comparisonFile has the figures that people read first.
const comparisonFile = "docs/comparison.md"

// staleBy is how far a figure of the comparison may be from the latest measurement before it
// misleads: runs differ, most of all in what is small.
const staleBy = 2

// rows returns the rows of the table whose first heading is first: each row's cells by the
// headings.
func rows(text []string, first string) map[string]map[string]string {
	var headings []string
	out := map[string]map[string]string{}
	for _, l := range text {
		if !strings.HasPrefix(l, "|") {
			headings = nil
			continue
		}
		cells := strings.Split(strings.Trim(l, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case headings == nil:
			headings = cells
		case headings[0] == first && slices.Contains(headings, "berth") && !strings.HasPrefix(cells[0], "---"):
			row := map[string]string{}
			for i, cell := range cells {
				// the kubelet's version is beside it
				heading, _, _ := strings.Cut(headings[min(i, len(headings)-1)], " ")
				row[heading] = cell
			}
			out[cells[0]] = row
		}
	}
	return out
}

// TestFiguresAreThoseMeasured: the figures of the comparison are rows of the latest measurement,
// and not far from it.
func TestFiguresAreThoseMeasured(t *testing.T) {
	told, measured := rows(lines(t, comparisonFile), ""), rows(lines(t, resultsFile), "What")
	if len(told) < 5 || len(measured) < len(told) {
		t.Fatalf("%d figures told of %d measured: are the tables still found?", len(told), len(measured))
	}
	for name, row := range told {
		for _, who := range []string{"berth", "kubelet"} {
			var a, b float64
			var unitA, unitB string
			if _, err := fmt.Sscan(row[who], &a, &unitA); err != nil {
				t.Errorf("%s: %s: %q is no figure: %v", comparisonFile, name, row[who], err)
				continue
			}
			if _, err := fmt.Sscan(measured[name][who], &b, &unitB); err != nil || unitA != unitB || a > staleBy*b ||
				b > staleBy*a {
				t.Errorf("%s says %s %s: %s; %s says %q", comparisonFile, who, name, row[who], resultsFile,
					measured[name][who])
			}
		}
	}
}
