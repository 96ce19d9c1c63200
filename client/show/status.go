package show

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/client/api"
)

// Status writes the state of a node on one screen: first the facts, then what needs a person.
func Status(w io.Writer, st *api.NodeStatus, now time.Time) error {
	p := printer{w}
	p.line(0, "Node", "%s", st.Node)
	p.line(0, "Agent", "berth %s, for %s, root directory %s", st.Version, Age(now, st.Started), st.RootDir)
	p.line(0, "Runtime", "%s", runtimeLine(&st.Runtime, now))
	cluster := "none"
	if c := st.Cluster; c != nil {
		cluster = c.Server + ", "
		switch {
		case c.Renewed.IsZero():
			cluster += "lease never renewed"
		default:
			cluster += "lease renewed " + Age(now, c.Renewed) + " ago"
		}
	}
	p.line(0, "Cluster", "%s", cluster)
	p.line(0, "Pressure", "%s", cmp.Or(strings.Join(st.Pressure, ", "), "none"))
	drained := "no"
	if st.Drain.State != api.Open {
		drained = fmt.Sprintf("%s, for %s, %d pods left", st.Drain.State, Age(now, st.Drain.Since), len(st.Drain.Left))
	}
	p.line(0, "Drained", "%s", drained)
	p.line(0, "Manifests", "%d accepted, %d refused", st.Manifests.Accepted, st.Manifests.Refused)
	p.line(0, "Pods", "%s", podCounts(st.Pods))
	if len(st.Attention) == 0 {
		_, err := fmt.Fprintln(w, "\nNothing needs a person.")
		return err
	}
	fmt.Fprintln(w, "\nNeeds a person:")
	for _, what := range st.Attention {
		if _, err := fmt.Fprintf(w, "  - %s\n", Clean(what)); err != nil {
			return err
		}
	}
	return nil
}

func runtimeLine(rt *api.Runtime, now time.Time) string {
	name := strings.TrimSpace(rt.Name + " " + rt.Version)
	if name == "" {
		name = "unknown"
	}
	name += " at " + rt.Endpoint
	switch {
	case rt.SilentSince != nil:
		return fmt.Sprintf("%s: no answer for %s", name, Age(now, *rt.SilentSince))
	case rt.Error != "" || len(rt.Faults) > 0:
		return name + ": not ready"
	}
	return name + ": ready"
}

// Silence returns since when the node's runtime does not answer, and why; empty if it answers.
func Silence(st *api.NodeStatus) string {
	if st.Runtime.SilentSince == nil {
		return ""
	}
	return fmt.Sprintf("no answer since %s: %s", st.Runtime.SilentSince.Local().Format(time.DateTime),
		Clean(st.Runtime.Error))
}

// Absent says what about the node may be why a pod is not there, to follow a sentence that says so;
// empty if nothing is.
func Absent(st *api.NodeStatus) string {
	out := ""
	if silence := Silence(st); silence != "" {
		out = "; pods are not known before the runtime answers: " + silence
	}
	if drained := Drained(st); drained != "" {
		out += "; " + drained
	}
	return out
}

// Drained returns since when the node is drained, and how that ends; empty if it is not drained.
func Drained(st *api.NodeStatus) string {
	if st.Drain.State == "" || st.Drain.State == api.Open {
		return ""
	}
	return fmt.Sprintf("the node is drained since %s: its pods run again after \"berth drain --undo\"",
		st.Drain.Since.Local().Format(time.DateTime))
}

// podCounts writes the pods by state: "3: 2 Running, 1 Pending".
func podCounts(counts map[string]int) string {
	total := 0
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		total += counts[state]
		parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
	}
	if total == 0 {
		return "none"
	}
	return fmt.Sprintf("%d: %s", total, strings.Join(parts, ", "))
}

// Notes writes what people must know about the node before they read about its pods: that the
// runtime is silent, and that the node is drained.
func Notes(w io.Writer, notes *api.Notes, now time.Time) {
	if since := notes.SilentSince; since != nil {
		fmt.Fprintf(w, "The container runtime has not answered for %s (%s): what follows is what was last known.\n",
			Age(now, *since), Clean(notes.Error))
	}
	if notes.Drain.State != "" && notes.Drain.State != api.Open {
		fmt.Fprintf(w, "This node is drained since %s: its pods run again after \"berth drain --undo\".\n",
			notes.Drain.Since.Local().Format(time.DateTime))
	}
}
