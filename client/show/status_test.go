package show

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/client/api"
)

func TestStatus(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	since := now.Add(-90 * time.Second)
	for name, c := range map[string]struct {
		change func(*api.NodeStatus)
		want   []string
	}{
		"well": {func(*api.NodeStatus) {}, []string{
			"Node:             n1\n", "Runtime:          containerd 2.1 at unix:///c: ready\n", "Cluster:          none\n",
			"Drained:          no\n", "Pressure:         none\n",
			"Manifests:        2 accepted, 0 refused\n", "Pods:             none\n",
			"\nNothing needs a person.\n",
		}},
		"silent": {func(st *api.NodeStatus) {
			st.Runtime.SilentSince, st.Attention = &since, []string{"a\x1b[0m", "b"}
		}, []string{": no answer for 90s\n", "\nNeeds a person:\n  - a", "\n  - b\n"}},
		"never answered": {func(st *api.NodeStatus) {
			st.Runtime = api.Runtime{Endpoint: "e", Error: "x"}
		}, []string{"Runtime:          unknown at e: not ready\n"}},
		"cluster": {func(st *api.NodeStatus) {
			st.Cluster = &api.Cluster{Server: "https://a", Renewed: now.Add(-3 * time.Second)}
			st.Pods = map[string]int{"Running": 2, "Failed": 1}
		}, []string{"https://a, lease renewed 3s ago\n", "Pods:             3: 1 Failed, 2 Running\n"}},
		"new": {func(st *api.NodeStatus) { st.Cluster = &api.Cluster{Server: "https://a"} }, []string{
			"https://a, lease never renewed\n",
		}},
		"drained": {func(st *api.NodeStatus) {
			st.Drain = api.Drain{State: api.Draining, Since: since, Left: []string{"a", "b"}}
		}, []string{"Draining, for 90s, 2 pods left\n"}},
	} {
		st := &api.NodeStatus{
			Node: "n1", Version: "v1", Started: now.Add(-time.Hour), Drain: api.Drain{State: api.Open},
			Runtime:   api.Runtime{Name: "containerd", Version: "2.1", Endpoint: "unix:///c"},
			Manifests: api.ManifestCounts{Accepted: 2},
		}
		c.change(st)
		var out bytes.Buffer
		if err := Status(&out, st, now); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", name, want, out.String())
			}
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: an escape sequence in %q", name, out.String())
		}
	}
}

func TestNotes(t *testing.T) {
	now := time.Now()
	since := now.Add(-time.Minute)
	var out bytes.Buffer
	Notes(&out, &api.Notes{Drain: api.Drain{State: api.Open}}, now)
	if out.Len() > 0 {
		t.Errorf("a node that is well: %q", out.String())
	}
	Notes(&out, &api.Notes{
		SilentSince: &since, Error: "refused", Drain: api.Drain{State: api.Drained, Since: since},
	}, now)
	for _, want := range []string{
		"has not answered for 60s (refused): what follows is what was last known", "berth drain --undo",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %q", want, out.String())
		}
	}
}

// Who looks for a pod that is not there hears what about the node may be the reason.
func TestAbsent(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	silent, drained := api.Runtime{SilentSince: &since, Error: "refused"}, api.Drain{State: api.Drained, Since: since}
	const (
		runtime = "; pods are not known before the runtime answers: no answer since 2026-01-02 03:04:05: refused"
		drain   = `; the node is drained since 2026-01-02 03:04:05: its pods run again after "berth drain --undo"`
	)
	for want, st := range map[string]api.NodeStatus{
		"":              {Drain: api.Drain{State: api.Open}},
		runtime:         {Runtime: silent},
		drain:           {Drain: drained},
		runtime + drain: {Runtime: silent, Drain: drained},
	} {
		if got := Absent(&st); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
