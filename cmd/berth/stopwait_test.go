package main

import (
	"strings"
	"testing"
	"time"
)

// A terminal shows how long a pod may still take, once a second, and nothing is left of that.
func TestStopProgress(t *testing.T) {
	var shown strings.Builder
	p := newStopProgress(&shown, "default/web", 30)
	p.show(p.began.Add(20 * time.Second))
	if shown.Len() > 0 {
		t.Errorf("no terminal, and it shows %q", shown.String())
	}
	p.clear()
	p = &stopProgress{w: &shown, name: "default/web", began: time.Now(), grace: 30 * time.Second}
	for _, past := range []time.Duration{0, time.Second, 1100 * time.Millisecond, 20 * time.Second, 31 * time.Second} {
		p.show(p.began.Add(past))
	}
	p.clear()
	want := "\rdefault/web stops: 29s of its grace period are left\x1b[K" +
		"\rdefault/web stops: 10s of its grace period are left\x1b[K" +
		"\rdefault/web stops: its grace period of 30s is over\x1b[K" + "\r\x1b[K"
	if shown.String() != want {
		t.Errorf("%q, want %q", shown.String(), want)
	}
}
