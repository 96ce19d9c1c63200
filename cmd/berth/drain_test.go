package main

import (
	"bytes"
	"testing"

	"github.com/berthd/berth/client/api"
)

// TestDrainTellsWhatIsLeft: the pods are named when their number changes, and no line is empty.
func TestDrainTellsWhatIsLeft(t *testing.T) {
	var out bytes.Buffer
	o := &drainOptions{errOut: &out, out: &out}
	printed := -1
	for _, left := range [][]string{{"b", "a"}, {"a", "b"}, {"a"}, {}, {}} {
		printed = o.progress(left, printed)
	}
	if err := o.say(&api.Drain{State: api.Draining}); err != nil {
		t.Error(err)
	}
	const want = "2 left: a b\n1 left: a\nPods are being stopped: what they leave is removed\n"
	if got := out.String(); got != want {
		t.Errorf("%q", got)
	}
}
