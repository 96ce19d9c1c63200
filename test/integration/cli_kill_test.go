//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berthd/berth/test/env"
)

// cliFollowsOverKills checks that following a log goes on after kills of the agent, and after a
// restart of the container while the agent is away. Every line comes once.
func cliFollowsOverKills(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "ticks", `
terminationGracePeriodSeconds: 1
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, 'i=0; while true; do i=$((i+1)); echo tick $i; sleep 0.02; done']
`)
	a.WaitReady(t, "ticks")
	follower := begin(t, a, nil, "logs", "-f", "ticks")
	seen := func(n int) {
		t.Helper()
		follower.waitOut(t, fmt.Sprintf("\ntick %d\n", n))
	}
	seen(20)
	for range 3 {
		before := strings.Count(follower.out.String(), "\n")
		again := strings.Count(follower.errOut.String(), "reconnected")
		a.Kill9()
		a.WaitEnded(t)
		env.Eventually(t, "word of the agent's end", func() error {
			if strings.Count(follower.errOut.String(), "reconnecting") <= again {
				return fmt.Errorf("it says %q", follower.errOut.String())
			}
			return nil
		})
		if err := a.Start(); err != nil {
			t.Fatal(err)
		}
		seen(before + 100)
	}
	follower.interrupt(t)
	for i, line := range strings.Split(strings.TrimSuffix(follower.out.String(), "\n"), "\n") {
		if line != fmt.Sprintf("tick %d", i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
	if out := follower.errOut.String(); strings.Contains(out, "EOF") || strings.Count(out, "\n") != 6 {
		t.Errorf("it says %q", out)
	}
	a.WaitReady(t, "ticks")
	removed(t, e, a, "ticks")
}

// cliExecOverKill checks that a command does not end with success if its agent is killed.
func cliExecOverKill(t *testing.T, _ *env.Env, a *env.Agent) {
	x := begin(t, a, nil, "exec", "server", "-c", "shell", "--", "sh", "-c",
		"echo $$ >/tmp/left; echo begun; exec sleep 4321")
	x.waitOut(t, "begun\n")
	a.Kill9()
	a.WaitEnded(t)
	if code := x.wait(t); code != 1 ||
		!strings.Contains(x.errOut.String(), "the connection was lost before the command had ended") {
		t.Errorf("code %d, %q", code, x.errOut.String())
	}
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "server")
	inside(t, a, "server", "shell", "sh", "-c", "kill $(cat /tmp/left) || true")
}
