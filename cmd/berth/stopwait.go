package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/show"
	"github.com/berthd/berth/internal/pods"
)

const (
	// stopLook is the time between two looks at whether a pod has stopped.
	stopLook = 200 * time.Millisecond
	// leastWait is the time for a look at a pod whose timeout is over, because another pod's wait
	// took so long.
	leastWait = time.Second
	// nodeLook is the time between two looks at whether the runtime answers and the node is drained.
	nodeLook = 2 * time.Second
)

// stopWait waits until a pod has stopped.
type stopWait struct {
	client *client.Client
	pod    *v1.Pod
	name   string
	// timeout is the longest wait since the progress began. Without one, the wait ends when the
	// runtime does not answer.
	timeout  time.Duration
	errOut   io.Writer
	progress *stopProgress
}

// run waits. The error says why the pod has not stopped yet.
func (s *stopWait) run(parent context.Context) error {
	ctx := parent
	if s.timeout > 0 {
		var cancel context.CancelFunc
		left := s.timeout - time.Since(s.progress.began)
		ctx, cancel = context.WithTimeout(parent, max(left, leastWait))
		defer cancel()
	}
	defer s.progress.clear()
	noted, looked := false, time.Time{}
	for {
		stopped, err := s.hasStopped(ctx)
		switch {
		case stopped:
			return nil
		case err != nil && ctx.Err() == nil:
			return err
		}
		if time.Since(looked) >= nodeLook && !noted {
			if silence := silenceOf(ctx, s.client); silence != "" {
				silent := fmt.Errorf("the stop of %s is recorded, and takes effect when the runtime answers again: %s", s.name,
					silence)
				if s.timeout == 0 {
					return silent
				}
				fmt.Fprintln(s.errOut, silent)
				noted = true
			}
			looked = time.Now()
		}
		s.progress.show(time.Now())
		select {
		case <-parent.Done():
			return fmt.Errorf("%s goes on stopping without this command: %w", s.name, context.Cause(parent))
		case <-ctx.Done():
			return fmt.Errorf("%s has not stopped within %s, and goes on stopping: see \"berth why %[1]s\"", s.name, s.timeout)
		case <-time.After(stopLook):
		}
	}
}

// hasStopped reports whether the pod has stopped, or is gone.
func (s *stopWait) hasStopped(ctx context.Context) (bool, error) {
	all, err := s.client.Summaries(ctx)
	if err != nil {
		return false, err
	}
	for i := range all {
		if all[i].UID == s.pod.UID {
			return all[i].Status == pods.ReasonStopped || all[i].Status == pods.ReasonDrained, nil
		}
	}
	return true, nil
}

// silenceOf returns since when the agent's runtime does not answer, and why; empty if it answers,
// or if the agent cannot say it.
func silenceOf(ctx context.Context, c *client.Client) string {
	st, err := c.Status(ctx)
	if err != nil {
		return ""
	}
	return show.Silence(st)
}

// startsWhen says what keeps a pod from starting now, to follow "starts"; empty if nothing does.
func startsWhen(ctx context.Context, c *client.Client) string {
	st, err := c.Status(ctx)
	if err != nil {
		return ""
	}
	if silence := show.Silence(st); silence != "" {
		return " when the runtime answers again: " + silence
	}
	if show.Drained(st) != "" {
		return ` after "berth drain --undo": the node is drained`
	}
	return ""
}

// drainOf returns that the agent's node is drained, since when, and how that ends; empty if it is
// not, or if the agent cannot say it.
func drainOf(ctx context.Context, c *client.Client) string {
	st, err := c.Status(ctx)
	if err != nil {
		return ""
	}
	return show.Drained(st)
}

// stopProgress shows on a terminal how much of its grace period a pod has left, in one line that it
// writes again every second.
type stopProgress struct {
	w     io.Writer
	name  string
	began time.Time
	grace time.Duration
	// line is what the terminal shows.
	line string
}

// newStopProgress returns the progress of a pod that begins to stop now, with its grace period in
// seconds. It shows nothing if w is no terminal.
func newStopProgress(w io.Writer, name string, grace int64) *stopProgress {
	if file, ok := w.(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
		w = io.Discard
	}
	return &stopProgress{w: w, name: name, began: time.Now(), grace: time.Duration(grace) * time.Second}
}

// show shows the time that is left. A pod that ends within the first second is not worth a line.
func (p *stopProgress) show(now time.Time) {
	past := now.Sub(p.began)
	if past < time.Second {
		return
	}
	line := fmt.Sprintf("%s stops: its grace period of %s is over", p.name, p.grace)
	if left := p.grace - past; left > 0 {
		line = fmt.Sprintf("%s stops: %s of its grace period are left", p.name, left.Round(time.Second))
	}
	if line != p.line {
		p.line = line
		fmt.Fprint(p.w, "\r"+line+eraseLine)
	}
}

// clear takes the line away.
func (p *stopProgress) clear() {
	if p.line != "" {
		fmt.Fprint(p.w, "\r"+eraseLine)
	}
}

// eraseLine erases what is left of a terminal's line (ECMA-48, EL).
const eraseLine = "\x1b[K"
