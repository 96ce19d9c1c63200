package scenario

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/berthd/berth/cri/fake"
)

// maxReports is how many failures of one pod life are reported in full.
const maxReports = 3

// TestCrashes plays each pod life once without a crash. Then it plays the life once for each call
// to the runtime, to the cgroups and to the API server that changes a pod, and kills the agent
// before or after the call; for each third of these crashes, the next agent is killed soon, too.
// The life must reach the same states with the same sandboxes and containers, and leave nothing,
// also no mount. The agent writes its checkpoints between two calls, so it is also killed before
// and after each of those writes. Every third of these crashes is played, at other calls for each
// kind, and all of them with $CRASHES=all. With the race detector or -short, it is every 21st: the
// detector needs the same code to run, not every crash.
func TestCrashes(t *testing.T) {
	for _, s := range podLives(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var calm outcome
			synctest.Test(t, func(t *testing.T) { calm = s.play(t, nil, nil) })
			if t.Failed() || calm.err != nil {
				t.Fatalf("undisturbed: %v\n%s", calm.err, calm.report)
			}
			step := 3
			switch {
			case testing.Short() || raced:
				step = 21
			case os.Getenv("CRASHES") == "all":
				step = 1
			}
			played, failed := 0, 0
			for n, kind := range []crashKind{
				{},
				{after: true},
				{cgroups: true},
				{cgroups: true, after: true},
				{requests: true},
				{requests: true, after: true},
				{twice: true},
				{twice: true, after: true},
			} {
				total := calm.calls
				switch {
				case kind.cgroups:
					total = calm.cgroups
				case kind.requests:
					total = calm.requests
				}
				stride := step
				if kind.twice {
					stride *= 3
				}
				for at := 1 + n%stride; at <= total; at += stride {
					var out outcome
					synctest.Test(t, func(t *testing.T) { out = s.play(t, &crash{kind: kind, at: at}, calm.dumps) })
					played++
					if out.err == nil {
						continue
					}
					if failed++; failed <= maxReports {
						t.Errorf("agent killed %s: %v\n%s", out.where, out.err, out.report)
					}
				}
			}
			t.Logf("%d crashes, %d failed", played, failed)
		})
	}
}

// crashKind is one way to crash the agent.
type crashKind struct {
	// after is the side of the call. cgroups counts changes of cgroups instead of calls to the
	// runtime, and requests counts changes of pods in the API server. twice crashes the next agent as
	// well.
	after, cgroups, requests, twice bool
}

// crash is a crash that is to happen.
type crash struct {
	kind crashKind
	at   int
	seen atomic.Int64
	// where is the call at which the crash happened.
	where atomic.Pointer[string]
}

// hits counts a call and reports whether the crash is at this call. The second crash comes some
// calls later, at different distances.
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

// outcome is the result of playing a pod life.
type outcome struct {
	err                      error
	calls, cgroups, requests int
	dumps                    []string
	where, report            string
}

// play plays the pod life on a new machine. With want, it compares the runtime's state after each
// act.
func (s podLife) play(t *testing.T, c *crash, want []string) (out outcome) {
	m := newMachine(t, fake.Config{WriteLogs: true, Script: s.script})
	if s.bound {
		m.join()
		defer m.api.Close()
	}
	var cgroups, requests atomic.Int64
	m.atCgroups = func(after bool) {
		if !after {
			cgroups.Add(1)
		}
		if c != nil && c.kind.cgroups && c.kind.after == after && c.hits("a cgroup's change") {
			m.crashHere()
		}
	}
	m.atRequests = func(after bool) {
		if !after {
			requests.Add(1)
		}
		if c != nil && c.kind.requests && c.kind.after == after && c.hits("a pod's change in the API server") {
			m.crashHere()
		}
	}
	if c != nil && !c.kind.cgroups && !c.kind.requests {
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
	out.calls, out.cgroups, out.requests = len(m.runtime.Calls()), int(cgroups.Load()), int(requests.Load())
	if out.err != nil {
		out.report = m.history()
	}
	if c != nil {
		if w := c.where.Load(); w != nil {
			out.where = *w
		}
	}
	return out
}

func (s podLife) run(m *machine, out *outcome, want []string) error {
	for i, a := range s.acts {
		if err := a.do(m); err != nil {
			return fmt.Errorf("act %d: %w", i+1, err)
		}
		err := until(goalLimit, func() error {
			// the next agent may also have crashed before there is something to see
			for m.fell() {
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

// dump is the runtime's dump with each sandbox's containers sorted. A container whose back-off
// after a crash delays it may be made after later ones.
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

// history returns what happened on the machine.
func (m *machine) history() string {
	var b strings.Builder
	b.WriteString(m.runtime.Dump())
	for _, c := range mutating(m.runtime.Calls()) {
		fmt.Fprintf(&b, "%s %s\n", c.Begin.Format("15:04:05.000"), c)
	}
	b.WriteString(m.log.tail(40))
	return b.String()
}
