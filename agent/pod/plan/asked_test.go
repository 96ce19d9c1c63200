package plan

import (
	"fmt"
	"testing"
	"time"
)

// asked is an operator's request for the restart of that attempt.
func asked(id string, grace *int64) func(*Input) {
	return func(in *Input) { in.Asked = map[string]AskedRestart{id: {Grace: grace}} }
}

func TestDecideAsked(t *testing.T) {
	check(t, Decide, []example{
		{
			name: "runs", pod: "Always a:a a:b", saw: "S0 ready,a#0 running,b#0 running", with: asked("a#0", nil),
			want: "kill[a#0:asked] initialized",
		},
		{
			name: "a sidecar", pod: "Always s:s a:a", saw: "S0 ready,s#0 running,a#0 running", with: asked("s#0", nil),
			want: "kill[s#0:asked] initialized",
		},
		{
			name: "the last one of a pod that runs once", pod: "Never a:a", saw: "S0 ready,a#0 running",
			with: asked("a#0", nil), want: "kill[a#0:asked] initialized",
		},
		{
			name: "is being stopped", pod: "Always a:a", saw: "S0 ready,a#0 running",
			with: all(asked("a#0", nil), busy("a#0", Stopping)), want: "initialized",
		},
		{
			name: "an attempt before", pod: "Always a:a", saw: "S0 ready,a#0 exited 1,a#1 running",
			with: asked("a#0", nil), want: "initialized",
		},
		{
			name: "waits for its back-off", pod: "Always a:a", saw: "S0 ready,a#0 exited 1 1s",
			with: all(asked("a#0", nil), backedOff("a", time.Minute, time.Second)),
			want: "start[a#1] initialized",
		},
	})
}

func TestAskedGrace(t *testing.T) {
	seconds := int64(3)
	in := Input{
		Pod: parsePod(t, "Never a:a"), Observed: parseObserved(t, "S0 ready", "a#0 running"), Now: now,
		Asked: map[string]AskedRestart{"a#0": {Grace: &seconds}}, Hash: hashOf,
	}
	got := Decide(in)
	if len(got.Kill) != 1 || got.Kill[0].Grace != &seconds || !got.Kill[0].Again {
		t.Errorf("kill %+v", got.Kill)
	}
}

func TestRestartable(t *testing.T) {
	for _, c := range []struct {
		pod, saw, name, want string
		with                 func(*Input)
	}{
		{pod: "Always a:a", saw: "a#3 running", name: "a", want: "a#3"},
		{pod: "Always s:s a:a", saw: "s#1 exited 0", name: "s", want: "s#1"},
		{pod: "Always a:a", saw: "a#0 exited 1", name: "a", want: "a#0"},
		{pod: "Always a:a", saw: "a#0 unknown", name: "a", want: "a#0"},
		{pod: "OnFailure a:a", saw: "a#0 exited 2", name: "a", want: "a#0"},
		{
			pod: "OnFailure a:a", saw: "a#0 exited 0", name: "a",
			want: "container a has ended with exit code 0, and its restart policy is OnFailure",
		},
		{
			pod: "Never a:a", saw: "a#0 exited 137", name: "a", want: "a#0",
			with: func(in *Input) { in.KilledToRestart = map[string]bool{"a#0": true} },
		},
		{pod: "Always a:a", name: "a", want: "container a has not started yet"},
		{pod: "Always a:a", saw: "a#0 created", name: "a", want: "container a has not started yet"},
		{pod: "Always a:a", name: "b", want: `the pod has no container "b"`},
		{
			pod: "Always i:i a:a", saw: "i#0 exited 0", name: "i",
			want: "container i is an init container, which runs only before the other containers",
		},
		{
			pod: "Always a:a e:e", saw: "e#0 running", name: "e",
			want: "container e is an ephemeral container, which runs once",
		},
	} {
		lines := []string{"S0 ready"}
		if c.saw != "" {
			lines = append(lines, c.saw)
		}
		in := Input{Pod: parsePod(t, c.pod), Observed: parseObserved(t, lines...), Now: now, Hash: hashOf}
		if c.with != nil {
			c.with(&in)
		}
		found, err := Restartable(in, c.name)
		got := fmt.Sprint(err)
		if err == nil {
			got = found.Id
		}
		if got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.pod, c.saw, got, c.want)
		}
	}
}
