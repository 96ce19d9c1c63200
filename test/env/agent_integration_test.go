//go:build integration

package env

import (
	"errors"
	"strings"
	"testing"
)

const sleeper = `apiVersion: v1
kind: Pod
metadata:
  name: sleeper
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: berth.local/busybox:v1
      command: [sleep, "3600"]
`

// TestAgentLives uses an agent from the first start to the last check for leaks.
func TestAgentLives(t *testing.T) {
	e := Containerd(t, Options{})
	a := e.StartAgent(t, AgentOptions{})
	a.WriteManifest(t, "sleeper.yaml", sleeper)
	a.WaitReady(t, "sleeper")
	if out, errOut, code := a.CLI("ps"); code != 0 || !strings.Contains(out, "sleeper") {
		t.Errorf("berth ps: code %d, %q, %q", code, out, errOut)
	}
	before := startedAt(t, a)

	a.Kill9()
	if a.Running() {
		t.Fatal("the agent outlived its kill")
	}
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "sleeper")
	if err := a.Restart(); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "sleeper")
	if after := startedAt(t, a); after != before {
		t.Errorf("the container was started at %s, and again at %s", before, after)
	}

	a.RemoveManifest(t, "sleeper.yaml")
	a.WaitGone(t, "sleeper")
	Eventually(t, "nothing to be left", func() error {
		if leaks := e.Leaks(); len(leaks) > 0 {
			return errors.New(strings.Join(leaks, "\n"))
		}
		return nil
	})
}

// startedAt returns when the sleeper's container was started.
func startedAt(t *testing.T, a *Agent) string {
	t.Helper()
	pods, err := a.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := Find(pods, "sleeper")
	if p == nil || len(p.Status.ContainerStatuses) != 1 {
		t.Fatalf("the sleeper's containers: %s", Describe(pods))
	}
	running := p.Status.ContainerStatuses[0].State.Running
	if running == nil {
		t.Fatalf("the sleeper does not run: %s", Describe(pods))
	}
	return running.StartedAt.String() + p.Status.ContainerStatuses[0].ContainerID
}
