package docs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// resultsFile is what "make bench" writes.
const resultsFile = "test/bench/results.md"

// staleBy is how far a figure of the README may be from the latest measurement before it misleads: runs differ, most of all in what is small.
const staleBy = 2

// rows returns the rows of the table whose first heading is first: each row's cells by the headings.
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
				heading, _, _ := strings.Cut(headings[min(i, len(headings)-1)], " ") // the kubelet's version is beside it
				row[heading] = cell
			}
			out[cells[0]] = row
		}
	}
	return out
}

// TestFiguresAreThoseMeasured: the README's figures are rows of the latest measurement, and not far from it.
func TestFiguresAreThoseMeasured(t *testing.T) {
	told, measured := rows(lines(t, "README.md"), ""), rows(lines(t, resultsFile), "What")
	if len(told) < 5 || len(measured) < len(told) {
		t.Fatalf("%d figures told of %d measured: are the tables still found?", len(told), len(measured))
	}
	for name, row := range told {
		for _, who := range []string{"berth", "kubelet"} {
			var a, b float64
			var unitA, unitB string
			if _, err := fmt.Sscan(row[who], &a, &unitA); err != nil {
				t.Errorf("README.md: %s: %q is no figure: %v", name, row[who], err)
				continue
			}
			if _, err := fmt.Sscan(measured[name][who], &b, &unitB); err != nil || unitA != unitB || a > staleBy*b || b > staleBy*a {
				t.Errorf("README.md says %s %s: %s; %s says %q", who, name, row[who], resultsFile, measured[name][who])
			}
		}
	}
}
