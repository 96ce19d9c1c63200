package probes

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestCost(t *testing.T) {
	const ms = time.Millisecond
	type ran struct{ took, busy time.Duration }
	for name, tc := range map[string]struct {
		runs []ran
		// at is the run after which a message comes, counted from 1; 0 means never.
		at   int
		want string
	}{
		"cheap": {runs: slices.Repeat([]ran{{20 * ms, 20 * ms}}, 50)},
		"half":  {runs: slices.Repeat([]ran{{500 * ms, 500 * ms}}, 50)},
		"more than half": {
			runs: slices.Repeat([]ran{{600 * ms, 600 * ms}}, 20),
			at:   5,
			want: "Liveness probe command takes 600ms on average, more than half of its period of 1s: raise " +
				"periodSeconds",
		},
		"slow at first": {runs: append(slices.Repeat([]ran{{900 * ms, 900 * ms}}, 2),
			slices.Repeat([]ran{{10 * ms, 10 * ms}}, 50)...)},
		"slower by and by": {
			runs: append(slices.Repeat([]ran{{10 * ms, 10 * ms}}, 50),
				slices.Repeat([]ran{{900 * ms, 900 * ms}}, 50)...),
			at:   58,
			want: "on average",
		},
		"longer once": {
			runs: []ran{{10 * ms, 10 * ms}, {1001 * ms, 1001 * ms}, {2 * time.Second, 2 * time.Second}},
			at:   2,
			want: "Liveness probe command took 1.001s, longer than its period of 1s: raise periodSeconds",
		},
		"waits for its turn": {
			runs: []ran{{1200 * ms, 200 * ms}},
			at:   1,
			want: "Liveness probe took 1.2s, longer than its period of 1s, and waited 1s of that for its turn among " +
				"the node's exec probes: raise periodSeconds",
		},
		"shares a command": {runs: slices.Repeat([]ran{{800 * ms, 0}}, 20)},
	} {
		var c cost
		said := 0
		for i, r := range tc.runs {
			text := c.note(Liveness, r.took, r.busy, time.Second)
			if text == "" {
				continue
			}
			said++
			if i+1 != tc.at || !strings.Contains(text, tc.want) {
				t.Errorf("%s: run %d: %s", name, i+1, text)
			}
		}
		if want := min(tc.at, 1); said != want {
			t.Errorf("%s: something was said %d times, want %d", name, said, want)
		}
	}
}

// Each observation has the cost of its probe: the time of the commands that ran for it.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.setFunc("check", func(context.Context) (int, []byte, error) {
			time.Sleep(300 * time.Millisecond)
			return 0, nil, nil
		})
		r.sync(podOf(v1.Container{LivenessProbe: execProbe("check", 5, 1), ReadinessProbe: execProbe("check", 5, 1)}),
			"id1")
		r.pass(4 * time.Second)
		var sum time.Duration
		for _, o := range r.observed {
			sum += o.Busy
			if o.Duration != 300*time.Millisecond {
				t.Errorf("observed %+v", o)
			}
		}
		if len(r.observed) != 2 || sum != 300*time.Millisecond {
			t.Errorf("%d probes cost %s, want 2 that share one command of 300ms", len(r.observed), sum)
		}
	})
}

// Of a command that never stops printing only a limited output is kept, in results, events and
// measurements.
func TestEndlessOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		big := []byte(strings.Repeat("y\n", 8<<20))
		r.setFunc("yes", func(context.Context) (int, []byte, error) { return 1, big, nil })
		r.sync(podOf(v1.Container{ReadinessProbe: execProbe("yes", 10, 1), LivenessProbe: execProbe("yes", 10, 1)}),
			"id1")
		got := r.Results(uid)["c"]
		if n := len(got.Message); got.Failed != Liveness || n > maxOutput+100 {
			t.Errorf("failed %q, with a message of %d bytes", got.Failed, n)
		}
		for _, e := range r.events {
			if len(e) > maxOutput+100 {
				t.Errorf("an event of %d bytes", len(e))
			}
		}
	})
}
