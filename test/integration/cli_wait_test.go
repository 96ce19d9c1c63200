//go:build integration

package integration

import (
	"strings"
	"testing"

	"github.com/berthd/berth/test/env"
)

// TestCLIWaits has restart and start wait for a pod that is ready some time after it has started,
// and for one that never is.
func TestCLIWaits(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	put(t, a, "slow", `
terminationGracePeriodSeconds: 1
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, 'rm -f /tmp/up; sleep 2; touch /tmp/up; exec sleep 1000']
    readinessProbe: {exec: {command: [test, -e, /tmp/up]}, periodSeconds: 1}
`)
	a.WaitReady(t, "slow")
	isReady := func() {
		t.Helper()
		if out := prints(t, a, []string{"ps", "slow", "--no-headers"}); !strings.Contains(out, "1/1") {
			t.Errorf("the wait is over before the pod is ready: %s", out)
		}
	}
	prints(t, a, []string{"restart", "slow", "--wait", "--timeout", "1m"}, "restarts: main", "slow-node is ready")
	isReady()
	prints(t, a, []string{"stop", "slow"}, "is stopped")
	prints(t, a, []string{"start", "slow", "--wait", "--timeout", "1m"}, "slow-node starts", "slow-node is ready")
	isReady()
	_, errOut, code := a.CLI("restart", "slow", "--wait", "--timeout", "100ms")
	if code != 1 || !strings.Contains(errOut, "slow-node is not ready after 100ms") {
		t.Errorf("code %d: %s", code, errOut)
	}
	a.WaitReady(t, "slow")
	removed(t, e, a, "slow")
	nothingLeft(t, e.Leaks)
}
