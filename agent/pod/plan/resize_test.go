package plan

import "testing"

// A container whose new resources need a restart is stopped and started again, whatever it ends
// with. The other containers are left alone, and a stop is asked for once.
func TestResizeThatNeedsARestart(t *testing.T) {
	resize := func(in *Input) { in.Resize = map[string]bool{"a#0": true, "s#0": true} }
	for _, e := range []struct {
		pod, saw, kills string
	}{
		{"OnFailure a:a a:b", "S0 ready,a#0 running,b#0 running", "a#0"},
		{"Always s:s a:b", "S0 ready,s#0 running,b#0 running", "s#0"},
		{"Always a:a", "S0 ready,a#1 running,a#0 exited 0", ""},
	} {
		in := example{pod: e.pod, saw: e.saw, with: resize}.input(t)
		a := Decide(in)
		if e.kills == "" {
			if len(a.Kill) > 0 {
				t.Errorf("%s: %+v is killed", e.pod, a.Kill)
			}
			continue
		}
		if len(a.Kill) != 1 || a.Kill[0].Container.Id != e.kills || a.Kill[0].Reason != KillResize || !a.Kill[0].Again {
			t.Errorf("%s: %+v", e.pod, a.Kill)
		}
		in.Busy = map[string]Operation{e.kills: Stopping}
		if a := Decide(in); len(a.Kill) > 0 {
			t.Errorf("%s: what stops is killed again: %+v", e.pod, a.Kill)
		}
	}
}
