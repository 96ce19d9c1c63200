package show

import (
	"fmt"
	"io"
	"time"

	"github.com/berthd/berth/client/api"
)

// Why writes a pod's story: what it waits for first, then each step.
func Why(w io.Writer, why *api.Why, now time.Time) error {
	name := why.Namespace + "/" + why.Name
	if why.WaitsFor == "" {
		fmt.Fprintf(w, "%s is %s and waits for nothing.\n", name, Clean(why.Status))
	} else {
		fmt.Fprintf(w, "%s is %s and waits for: %s\n", name, Clean(why.Status), Clean(why.WaitsFor))
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
		fmt.Fprintf(w, "Last error:  %s, %s ago%s%s: %s\n", e.Step, Age(now, e.Last), times(e.Count), overcome(e), Clean(e.Message))
	}
	if m := why.Manifest; m != nil {
		fmt.Fprintf(w, "Manifest:    %s is refused: %s\n", m.File, problem(*m))
	}
	if len(why.Steps) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := Table{Headings: []string{"BEGAN", "STEP", "OUTCOME", "TOOK", "TIMES", "LAST", "MESSAGE"}}
	for _, s := range why.Steps {
		t.Add(s.Begin.Local().Format("15:04:05.000"), s.Step, s.Outcome, Took(s.End.Sub(s.Begin)), fmt.Sprint(s.Count), Age(now, s.Last)+" ago", s.Message)
	}
	return t.Write(w)
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
