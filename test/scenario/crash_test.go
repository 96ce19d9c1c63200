package scenario

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/berthd/berth/cri/fake"
)

// maxReports is how many failures of one story are told in full.
const maxReports = 3

// TestCrashes plays each story once undisturbed, then once for each call to the runtime and to the cgroups and each side of it with the agent
// killed there, and at each third of them with the next agent killed soon after, too. The story must come to the same states, with the same sandboxes
// and containers, and leave nothing. Since the agent's checkpoints are written between two calls, this kills it before and after each of
// those writes as well. Under the race detector, and with -short, every seventh of these crashes is played: the unit tests' runner plays all of
// them without it.
func TestCrashes(t *testing.T) {
	for _, s := range stories(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var calm outcome
			synctest.Test(t, func(t *testing.T) { calm = s.play(t, nil, nil) })
			if t.Failed() || calm.err != nil {
				t.Fatalf("undisturbed: %v\n%s", calm.err, calm.told)
			}
			step := 1
			if testing.Short() || raced {
				step = 7
			}
			played, failed := 0, 0
			for _, kind := range []crashKind{{}, {after: true}, {cgroups: true}, {cgroups: true, after: true}, {twice: true}, {twice: true, after: true}} {
				total := calm.calls
				if kind.cgroups {
					total = calm.cgroups
				}
				stride := step
				if kind.twice {
					stride *= 3
				}
				for at := 1; at <= total; at += stride {
					var out outcome
					synctest.Test(t, func(t *testing.T) { out = s.play(t, &crash{kind: kind, at: at}, calm.dumps) })
					played++
					if out.err == nil {
						continue
					}
					if failed++; failed <= maxReports {
						t.Errorf("agent killed %s: %v\n%s", out.where, out.err, out.told)
					}
				}
			}
			t.Logf("%d crashes, %d failed", played, failed)
		})
	}
}

// crashKind is a way to crash the agent.
type crashKind struct {
	// after is the side of the call; cgroups counts changes of cgroups in place of calls to the runtime; twice crashes the next agent as well.
	after, cgroups, twice bool
}

// crash is a crash to come.
type crash struct {
	kind crashKind
	at   int
	seen atomic.Int64
	// where says at which call it happened.
	where atomic.Pointer[string]
}

// hits counts a call and reports whether it is the one. The second crash comes some calls later, at different distances.
func (c *crash) hits(what string) bool {
	n := int(c.seen.Add(1))
	second := c.kind.twice && n == c.at+1+c.at%13
	if n != c.at && !second {
		return false
	}
	side := "before"
	if c.kind.after {
		side = "after"
	}
	text := fmt.Sprintf("%s call %d, %s", side, n, what)
	if was := c.where.Load(); was != nil {
		text = *was + ", and " + text
	}
	c.where.Store(&text)
	return true
}

// outcome is how a story went.
type outcome struct {
	err            error
	calls, cgroups int
	dumps          []string
	where, told    string
}

// play plays the story on a new machine, and with want compares the runtime's state after each act.
func (s story) play(t *testing.T, c *crash, want []string) (out outcome) {
	m := newMachine(t, fake.Config{WriteLogs: true, Script: s.script})
	var cgroups atomic.Int64
	m.atCgroups = func(after bool) {
		if !after {
			cgroups.Add(1)
		}
		if c != nil && c.kind.cgroups && c.kind.after == after && c.hits("a cgroup's change") {
			m.crashHere()
		}
	}
	if c != nil && !c.kind.cgroups {
		m.runtime.Inject(fake.Fault{
			Match: func(call fake.Call) bool { return c.hits(call.String()) }, After: c.kind.after, Crash: m.crashHere,
		})
	}
	m.start()
	out.err = s.run(m, &out, want)
	m.runtime.ClearFaults()
	if m.fell() {
		m.bury()
	} else {
		m.stop()
	}
	if bad := m.check(); len(bad) > 0 && out.err == nil {
		out.err = fmt.Errorf("broken: %q", bad)
	}
	out.calls, out.cgroups = len(m.runtime.Calls()), int(cgroups.Load())
	if out.err != nil {
		out.told = m.story()
	}
	if c != nil {
		if w := c.where.Load(); w != nil {
			out.where = *w
		}
	}
	return out
}

func (s story) run(m *machine, out *outcome, want []string) error {
	for i, a := range s.acts {
		if err := a.do(m); err != nil {
			return fmt.Errorf("act %d: %w", i+1, err)
		}
		err := until(goalLimit, func() error {
			for m.fell() { // the next one, too, may have crashed by the time that there is something to see
				m.bury()
				m.start()
				synctest.Wait()
			}
			if err := a.goal(m); err != nil {
				return err
			}
			if dump := m.dump(); want != nil && dump != want[i] {
				return fmt.Errorf("the runtime has\n%sin place of\n%s", dump, want[i])
			}
			if lost := m.lostLinks(); len(lost) > 0 {
				return fmt.Errorf("links to the logs of containers that are not there: %q", lost)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("act %d: %w", i+1, err)
		}
		out.dumps = append(out.dumps, m.dump())
	}
	return nil
}

// dump is the runtime's dump with each sandbox's containers sorted: a container that is held back by its back-off after a crash may be made after
// those behind it.
func (m *machine) dump() string {
	var out, members []string
	for line := range strings.Lines(m.runtime.Dump() + "\n") {
		if strings.HasPrefix(line, "\t") {
			members = append(members, line)
			continue
		}
		slices.Sort(members)
		out, members = append(append(out, members...), line), nil
	}
	return strings.Join(out, "")
}

// story tells what happened on the machine.
func (m *machine) story() string {
	var b strings.Builder
	b.WriteString(m.runtime.Dump())
	for _, c := range mutating(m.runtime.Calls()) {
		fmt.Fprintf(&b, "%s %s\n", c.Begin.Format("15:04:05.000"), c)
	}
	b.WriteString(m.log.tail(40))
	return b.String()
}
