package timeline

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at makes an entry that took a second and began n minutes after the start.
func at(n int, step string, outcome Outcome, message string) Entry {
	b := begin.Add(time.Duration(n) * time.Minute)
	return Entry{Step: step, Begin: b, End: b.Add(time.Second), Outcome: outcome, Message: message}
}

func told(list []Entry) string {
	var out []string
	for _, e := range list {
		out = append(out, fmt.Sprintf("%s %s %q x%d", e.Step, e.Outcome, e.Message, e.Count))
	}
	return strings.Join(out, ", ")
}

func TestAlikeEntriesAreCounted(t *testing.T) {
	b := New()
	for n := range 3 {
		b.Add("u", at(n, "admit", Done, ""))
		b.Add("u", at(n, "sandbox", Failed, "no CNI"))
	}
	b.Add("u", at(3, "admit", Done, ""))
	b.Add("u", at(3, "sandbox", Done, ""))
	b.Add("u", at(4, "admit", Done, ""))
	b.Add("u", at(4, "sandbox", Failed, "no CNI"))
	want := `admit done "" x5, sandbox failed "no CNI" x3, sandbox done "" x1, sandbox failed "no CNI" x1`
	if got := told(b.Get("u")); got != want {
		t.Errorf("story:\n got %s\nwant %s", got, want)
	}
	first := b.Get("u")[0]
	if first.Begin != begin || first.End != begin.Add(time.Second) ||
		first.Last != begin.Add(4*time.Minute+time.Second) {
		t.Errorf("the first entry spans %s to %s, last %s", first.Begin, first.End, first.Last)
	}
}

func TestStoryIsBoundedAndKeepsItsBeginning(t *testing.T) {
	b := New()
	for n := range 1000 {
		b.Add("u", at(n, "images", Failed, fmt.Sprint(n)))
	}
	story := b.Get("u")
	if len(story) != limit {
		t.Fatalf("%d entries", len(story))
	}
	for i, e := range story {
		want := fmt.Sprint(i)
		if i >= head {
			want = fmt.Sprint(1000 - limit + i)
		}
		if e.Message != want {
			t.Fatalf("entry %d is %q, want %q", i, e.Message, want)
		}
	}
}

func TestMessageIsBounded(t *testing.T) {
	b := New()
	for range 2 {
		b.Add("u", at(0, "sandbox", Failed, strings.Repeat("ä", maxMessage)))
	}
	story := b.Get("u")
	if m := story[0].Message; len(story) != 1 || story[0].Count != 2 || len(m) > maxMessage || !utf8.ValidString(m) ||
		!strings.HasSuffix(m, "…") {
		t.Errorf("%d entries, message of %d bytes", len(story), len(m))
	}
}

func TestPodsAreApartAndForgotten(t *testing.T) {
	b := New()
	b.Add("u", at(0, "admit", Done, ""))
	b.Add("v", at(0, "admit", Failed, ""))
	got := b.Get("u")
	got[0].Step = "mine"
	if told(b.Get("u")) != `admit done "" x1` {
		t.Error("what was handed out is not a copy")
	}
	b.Forget("u")
	b.Forget("nobody")
	if len(b.Get("u")) != 0 || len(b.Get("v")) != 1 {
		t.Error("the wrong story was forgotten")
	}
}

func TestConcurrentUse(t *testing.T) {
	b := New()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for n := range 200 {
				b.Add("u", at(n, fmt.Sprint(n%7), Done, fmt.Sprint(n%3)))
				b.Get("u")
			}
		})
	}
	wg.Wait()
	total := 0
	for _, e := range b.Get("u") {
		total += e.Count
	}
	if total < limit {
		t.Errorf("%d passes are counted", total)
	}
}

func TestUnderWay(t *testing.T) {
	b := New()
	b.Begin("u", "admit", begin)
	b.Begin("u", "sandbox", begin.Add(time.Second))
	if got := b.UnderWay("u"); got.Step != "sandbox" || !got.Since.Equal(begin.Add(time.Second)) {
		t.Errorf("under way %+v", got)
	}
	for name, end := range map[string]func(){
		"told":      func() { b.Add("u", at(0, "sandbox", Done, "")) },
		"not told":  func() { b.End("u") },
		"forgotten": func() { b.Forget("u") },
	} {
		b.Begin("u", "sandbox", begin)
		end()
		if got := b.UnderWay("u"); got != (Begun{}) {
			t.Errorf("%s: still under way %+v", name, got)
		}
	}
}

// The lines of several failures become one line.
func TestSeveralLines(t *testing.T) {
	b := New()
	b.Add("u", Entry{Step: "remove volumes", Message: "unmounting a: busy\n  unmounting b: busy\n\n"})
	if got := b.Get("u")[0].Message; got != "unmounting a: busy; unmounting b: busy" {
		t.Errorf("message %q", got)
	}
}
