package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// logLine is a line of a log: a time, and the text with its end.
type logLine struct {
	at   time.Time
	text string
}

const wire = "2006-01-02T15:04:05.000000000Z07:00"

// render writes the lines from a time on as the agent does.
func render(all []logLine, since time.Time) string {
	var b strings.Builder
	for _, l := range all {
		if !l.at.Before(since) {
			b.WriteString(l.at.Format(wire) + " " + l.text)
		}
	}
	return b.String()
}

// randomLog returns a log of two streams. Its times may go back a little, and some lines are equal,
// empty, long or endless.
func randomLog(r *rand.Rand) []logLine {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var all []logLine
	for i := range 5 + r.IntN(60) {
		switch r.IntN(4) {
		case 0: // the same nanosecond
		case 1:
			at = at.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
		default:
			at = at.Add(time.Duration(r.IntN(2000)) * time.Microsecond)
		}
		text := fmt.Sprintf("line %d", i)
		switch r.IntN(100) {
		case 0:
			text = strings.Repeat(fmt.Sprint(i%10), 1+r.IntN(3*maxWhole))
		case 1, 2, 3, 4, 5, 6:
			text = "same"
		case 7, 8, 9, 10, 11, 12:
			text = ""
		}
		all = append(all, logLine{at.Add(-time.Duration(r.IntN(500)) * time.Millisecond), text + "\n"})
	}
	if r.IntN(3) == 0 {
		all[len(all)-1].text = strings.TrimSuffix(all[len(all)-1].text, "\n")
	}
	return all
}

// TestResume breaks streams off at random places, again and again, and checks that the written text
// is the log.
func TestResume(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		all := randomLog(r)
		stamps := r.IntN(2) == 0
		var out bytes.Buffer
		res := newResumer(&out, stamps, nil)
		since := time.Time{}
		for range r.IntN(6) {
			text := render(all, since)
			if done, err := res.copy(&chunks{text: text[:r.IntN(len(text)+1)], rand: r, end: unix.ECONNRESET}); done ||
				!brokenOff(err) {
				t.Fatalf("seed %d: %v %v", seed, done, err)
			}
			since = res.since()
		}
		if done, err := res.copy(&chunks{text: render(all, since), rand: r, end: io.EOF}); !done || err != nil {
			t.Fatalf("seed %d: %v %v", seed, done, err)
		}
		want := render(all, time.Time{})
		if !stamps {
			want = ""
			for _, l := range all {
				want += l.text
			}
		}
		if out.String() != want {
			t.Fatalf("seed %d: %d bytes, want %d; they differ from %d on", seed, out.Len(), len(want),
				differ(out.String(), want))
		}
	}
}

// chunks reads a text in chunks of random sizes, and ends with an error.
type chunks struct {
	text string
	rand *rand.Rand
	end  error
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.text == "" {
		return 0, c.end
	}
	n := copy(p[:1+c.rand.IntN(len(p))], c.text)
	c.text = c.text[n:]
	return n, nil
}

func differ(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// The clock was put back while the log was followed. A stream that is resumed later begins where
// the last one broke off, and not at a time in the future.
func TestResumeAfterTheClockWasPutBack(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	all := []logLine{
		{at, "one\n"},
		{at.Add(-time.Hour), "two\n"},
		{at.Add(-time.Hour + time.Minute), "three\n"},
		{at.Add(-time.Hour + 2*time.Minute), "four\n"},
	}
	var out bytes.Buffer
	res := newResumer(&out, false, nil)
	broken := func(text string) time.Time {
		if _, err := res.copy(&chunks{
			text: text,
			rand: rand.New(rand.NewPCG(1, 1)),
			end:  unix.ECONNRESET,
		}); !brokenOff(err) {
			t.Fatal(err)
		}
		return res.since()
	}
	if since := broken(render(all[:3], time.Time{})); !since.Equal(all[2].at.Add(-overlap)) {
		t.Errorf("it is resumed at %s", since)
	}
	if len(res.recent) != 1 {
		t.Errorf("of three lines a minute and more apart it remembers %v", res.recent)
	}
	if done, err := res.copy(strings.NewReader(render(all[2:], time.Time{}))); !done || err != nil ||
		out.String() != "one\ntwo\nthree\nfour\n" {
		t.Errorf("%v %v %q", done, err, out.String())
	}

	// The only remembered line is the one that broke off, and it does not come again.
	res = newResumer(&out, false, nil)
	broken(strings.TrimSuffix(render(all[:1], time.Time{}), "e\n"))
	broken("12:00:00Z no time")
	if done, err := res.copy(strings.NewReader(render(all[1:2], time.Time{}))); !done || err != nil {
		t.Errorf("%v %v", done, err)
	}
}

// TestResumeLeavesOut checks a limit, and the rest of a line that began before the stream did.
func TestResumeLeavesOut(t *testing.T) {
	const one, two = "2026-01-01T00:00:01.000000000Z one\n", "2026-01-01T00:00:02.000000000Z two\n"
	limit := int64(5)
	var out bytes.Buffer
	r := newResumer(&out, false, &limit)
	if done, err := r.copy(strings.NewReader(one + two)); !done || err != nil || out.String() != "one\nt" {
		t.Errorf("limited: %v %v %q", done, err, out.String())
	}

	out.Reset()
	r = newResumer(&out, true, nil)
	if _, err := r.copy(&chunks{
		text: one + two[:len(two)-2],
		rand: rand.New(rand.NewPCG(1, 1)),
		end:  io.ErrUnexpectedEOF,
	}); !brokenOff(err) {
		t.Fatal(err)
	}
	r.since()
	if done, err := r.copy(strings.NewReader("rest\n" + one + two)); !done || err != nil || out.String() != one+two {
		t.Errorf("rest of a line: %v %v %q", done, err, out.String())
	}

	out.Reset()
	r = newResumer(&out, false, nil)
	if done, err := r.copy(strings.NewReader("no time\n" + one)); !done || err != nil ||
		out.String() != "no time\none\n" {
		t.Errorf("no times: %v %v %q", done, err, out.String())
	}
	if done, err := newResumer(failing{}, false, nil).copy(strings.NewReader(one)); !done ||
		!errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("nowhere to write to: %v %v", done, err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
