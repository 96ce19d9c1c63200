package topology

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// parse reads hints: the hints of each resource as "01 10! 11", the highest node first, preferred
// ones with an exclamation mark; "-" for a resource that cannot be had, "any" and "any!" for hints
// of no node. Resources are separated by "|".
func parse(t *testing.T, text string) [][]Hint {
	t.Helper()
	var out [][]Hint
	for resource := range strings.SplitSeq(text, "|") {
		hints := []Hint{}
		for word := range strings.FieldsSeq(resource) {
			mask, preferred := strings.CutSuffix(word, "!")
			if mask == "-" {
				continue
			}
			h := Hint{Preferred: preferred}
			if mask != "any" {
				nodes, err := strconv.ParseUint(mask, 2, 64)
				if err != nil {
					t.Fatal(err)
				}
				h.Nodes = Mask(nodes)
			}
			hints = append(hints, h)
		}
		if strings.TrimSpace(resource) != "" {
			out = append(out, hints)
		}
	}
	return out
}

func (h Hint) text() string {
	out := "any"
	if h.Nodes != 0 {
		out = strconv.FormatUint(uint64(h.Nodes), 2)
	}
	if h.Preferred {
		out += "!"
	}
	return out
}

// What each policy makes of hints, on a machine with four NUMA nodes. The answers are those of a
// kubelet 1.36. "no" follows the answer of a policy that refuses the pod.
func TestMerge(t *testing.T) {
	for _, c := range []struct{ hints, bestEffort, restricted, single string }{
		{"", "1111!", "1111!", "any!"},
		{"any!", "1111!", "1111!", "any!"},
		{"any", "1111", "1111 no", "any no"},
		{"-", "1111", "1111 no", "any no"},
		{"- | 1!", "1", "1 no", "any no"},
		{"1! 10! 11", "1!", "1!", "1!"},
		{"10!", "10!", "10!", "10!"},
		{"10", "10", "10 no", "any no"},
		{"11!", "11!", "11!", "any no"},
		{"1! 10! | 10! 11", "10!", "10!", "10!"},
		{"1! 10! 11 | 1! 10! 11", "1!", "1!", "1!"},
		{"1! | 10!", "1111", "1111 no", "any no"},
		{"1! | 11!", "1", "1 no", "any no"},
		{"1! 11 | 11!", "11", "11 no", "any no"},
		{"1! | 1", "1", "1 no", "any no"},
		{"1 11! | 1 11!", "11!", "11!", "any no"},
		{"11! 110! 101! | 110! 1!", "110!", "110!", "any no"},
		{"1! 10! 100! | 10! 100! | 100!", "100!", "100!", "100!"},
		{"1! 10! | any! | 10!", "10!", "10!", "10!"},
		{"1! 10! | any | 10!", "10", "10 no", "any no"},
		{"11 110 | 11 110", "11", "11 no", "any no"},
		{"111 1110 | 11 110", "11", "11 no", "any no"},
		{"1 111 | 111", "111", "111 no", "any no"},
		{"111 | 1 111", "111", "111 no", "any no"},
		{"1111! | 1111!", "1111!", "1111!", "any no"},
		{"10000!", "1111", "1111 no", "any no"},
		{"10011!", "11!", "11!", "any no"},
	} {
		for name, want := range map[string]string{
			BestEffort: c.bestEffort, Restricted: c.restricted, SingleNUMANode: c.single,
		} {
			p := &Policy{Name: name, Nodes: MaskOf(0, 1, 2, 3)}
			hint, ok := p.Merge(parse(t, c.hints))
			got := hint.text()
			if !ok {
				got += " no"
			}
			if got != want {
				t.Errorf("%s of %q: %s, want %s", name, c.hints, got, want)
			}
		}
	}
}

// The closest nodes are better than those with the lowest numbers, but not than fewer nodes.
func TestClosest(t *testing.T) {
	far := map[int][]int{0: {10, 30, 20}, 1: {30, 10, 30}, 2: {20, 30, 10}}
	for hints, want := range map[string]string{
		"11! 101! 110!": "101!", "11! 110!": "11!", "11 101 110": "101", "111! 11!": "11!",
		"11! 101! | 11! 101! 110!": "101!",
	} {
		p := &Policy{Name: Restricted, Nodes: MaskOf(0, 1, 2), Distances: far}
		if got, _ := p.Merge(parse(t, hints)); got.text() != want {
			t.Errorf("%s: %s, want %s", hints, got.text(), want)
		}
	}
}

// Many hints of many resources take no time that grows with their product: this would be 255^6
// combinations.
func TestManyHints(t *testing.T) {
	p := &Policy{Name: BestEffort, Nodes: MaskOf(0, 1, 2, 3, 4, 5, 6, 7)}
	hints, smallest := Hints(p.Nodes, func(m Mask) bool { return m.Count() >= 3 }, func(m Mask) bool { return true })
	if len(hints) != 255 || smallest != 3 {
		t.Errorf("%d hints, smallest %d", len(hints), smallest)
	}
	if got, ok := p.Merge([][]Hint{hints, hints, hints, hints, hints, hints}); got.text() != "111!" || !ok {
		t.Error(got.text(), ok)
	}
}

func TestMask(t *testing.T) {
	m := MaskOf(3, 0, 64, -1)
	var subsets []string
	for s := range m.Subsets {
		subsets = append(subsets, fmt.Sprint(s.Nodes()))
	}
	if got := strings.Join(subsets, " "); got != "[0] [3] [0 3]" || m.Count() != 2 || !m.Has(3) || m.Has(1) || m.Has(64) {
		t.Error(m.Nodes(), got)
	}
	for range m.Subsets {
		break // a caller may stop
	}
}
