package show

import (
	"fmt"
	"io"
	"time"

	"github.com/berthd/berth/client/api"
)

// Why writes a pod's timeline: first what the pod waits for, then the last attempt at each step,
// then what was before.
func Why(w io.Writer, why *api.Why, now time.Time) error {
	name := why.Namespace + "/" + why.Name
	switch {
	case why.Until != nil:
		fmt.Fprintf(w, "%s was %s, as last heard of at %s.\n", name, Clean(why.Status),
			why.Until.Local().Format(time.DateTime))
	case why.WaitsFor == "" && why.Ended != "":
		fmt.Fprintf(w, "%s is %s and waits for nothing. It failed: %s\n", name, Clean(why.Status), Clean(why.Ended))
	case why.WaitsFor == "":
		fmt.Fprintf(w, "%s is %s and waits for nothing.\n", name, Clean(why.Status))
	default:
		fmt.Fprintf(w, "%s is %s and waits for: %s\n", name, Clean(why.Status), Clean(why.WaitsFor))
		if why.Ended != "" {
			fmt.Fprintf(w, "Failed:      %s\n", Clean(why.Ended))
		}
	}
	if why.Step != "" {
		fmt.Fprintf(w, "Step:        %s\n", why.Step)
	}
	if why.NextRetry != nil {
		in := why.NextRetry.Sub(now)
		text := "now"
		if in > 0 {
			text = "in " + Took(in)
		}
		fmt.Fprintf(w, "Next retry:  %s\n", text)
	}
	if e := why.LastError; e != nil {
		about := e.Step
		if e.Container != "" {
			about += " of container " + e.Container
		}
		fmt.Fprintf(w, "Last error:  %s, %s ago%s%s: %s\n", about, Age(now, e.Last), times(e.Count), overcome(e),
			Clean(e.Message))
	}
	if c := why.LastChange; c != nil {
		fmt.Fprintf(w, "Last change: %s ago: %s\n", Age(now, c.At), Clean(c.Message))
	}
	for _, warning := range why.Warnings {
		fmt.Fprintf(w, "Warning:     %s\n", Clean(warning))
	}
	if m := why.Manifest; m != nil {
		fmt.Fprintf(w, "Manifest:    %s\n", refusedManifest(m, why.UID != ""))
	}
	last, before := attempts(why.Steps)
	if err := steps(w, "The last attempt at each step:", last, now); err != nil {
		return err
	}
	return steps(w, "Before that:", before, now)
}

// attempts splits a timeline into the latest entry of each step, and the entries before those. Both
// are in the order of the timeline.
func attempts(list []api.Step) (last, before []api.Step) {
	latest := map[string]int{}
	for i := range list {
		latest[list[i].Step] = i
	}
	for i := range list {
		if latest[list[i].Step] == i {
			last = append(last, list[i])
		} else {
			before = append(before, list[i])
		}
	}
	return last, before
}

// steps writes a part of a timeline; nothing if there is none.
func steps(w io.Writer, title string, list []api.Step, now time.Time) error {
	if len(list) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\n%s\n", title)
	t := Table{Headings: []string{"BEGAN", "STEP", "OUTCOME", "TOOK", "TIMES", "LAST", "MESSAGE"}}
	for _, s := range list {
		t.Add(s.Begin.Local().Format("15:04:05.000"), s.Step, s.Outcome, Took(s.End.Sub(s.Begin)), fmt.Sprint(s.Count),
			Age(now, s.Last)+" ago", s.Message)
	}
	return t.Write(w)
}

// refusedManifest says that a pod's manifest was refused, and what runs instead if the pod exists.
func refusedManifest(m *api.Manifest, runs bool) string {
	text := Clean(m.File) + " is refused: " + Problem(*m)
	if runs {
		text += "; the pod is of its last good version"
	}
	return text
}

func times(n int) string {
	if n <= 1 {
		return ""
	}
	return fmt.Sprintf(", %d times", n)
}

func overcome(e *api.Failure) string {
	if e.Overcome {
		return ", overcome since"
	}
	return ""
}
