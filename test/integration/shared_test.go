//go:build integration

package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/test/env"
)

// TestAgentsShareNothing starts agents that share one thing each with an agent that runs. They end,
// and name that agent. The agent's own successor is not kept out after a kill.
func TestAgentsShareNothing(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	port, err := env.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	healthz := fmt.Sprintf("healthzPort: %d", port)
	a := e.StartAgent(t, env.AgentOptions{Kubelet: healthz + "\n"})
	a.WaitUp(t)
	for name, shared := range map[string]string{
		"manifests": "staticPodPath: " + a.Manifests,
		"logs":      "podLogsDir: " + a.LogsDir,
		"cgroups":   "cgroupRoot: " + e.CgroupRoot,
		"ports":     healthz,
	} {
		second := e.StartAgent(t, env.AgentOptions{Name: name, Kubelet: shared})
		second.WaitEnded(t)
		said := fmt.Sprintf("another agent (process %d, root directory %s) holds the ", a.PID(), a.RootDir)
		setting, _, _ := strings.Cut(shared, ":")
		if log := second.LogTail(); !strings.Contains(log, said) || !strings.Contains(log, "its own "+setting) {
			t.Errorf("an agent with the same %s: %s", name, log)
		}
	}
	a.Kill9()
	a.WaitEnded(t)
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	a.WaitUp(t)
	if files, err := filepath.Glob(filepath.Join(a.Manifests, ".*")); err != nil || len(files) > 0 {
		t.Errorf("the agent leaves %q among the manifests: %v", files, err)
	}
}
