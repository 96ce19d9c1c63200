//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthd/berth/test/env"
)

// TestStaticMemory checks that a Guaranteed container gets memory of NUMA nodes under the policy
// Static, together with its CPU under the topology manager, that the kubelet's file says so, also
// after a crash of the agent, and that nothing is left of it when the pod is gone.
func TestStaticMemory(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{Kubelet: `memoryManagerPolicy: Static
topologyManagerPolicy: single-numa-node
systemReserved: {memory: 20Mi}
evictionHard: {memory.available: 10Mi}
reservedMemory: [{numaNode: 0, limits: {memory: 30Mi}}]
`})
	a.WaitUp(t)
	put(t, a, "bound", `
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, "trap 'exit 0' TERM; while true; do sleep 0.1; done"]
    resources: {limits: {cpu: 100m, memory: 20Mi}}
`)
	a.WaitReady(t, "bound")
	const want = `{"main":[{"numaAffinity":[0],"type":"memory","size":20971520}]}`
	if got := memoryOf(t, a); got != want {
		t.Errorf("the state file has %s, want %s", got, want)
	}
	out, stderr, code := a.CLI("exec", "bound", "--", "grep", "-c", "Mems_allowed_list:.0$", "/proc/self/status")
	if code != 0 {
		t.Errorf("the container's NUMA nodes: %s, %s", out, stderr)
	}
	started := containerID(t, a, "bound")
	a.Kill9()
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "bound")
	if got := memoryOf(t, a); got != want || containerID(t, a, "bound") != started {
		t.Errorf("after a crash of the agent the state file has %s, want %s", got, want)
	}
	a.RemoveManifest(t, "bound.yaml")
	env.Eventually(t, "the memory to be given back", func() error {
		if got := memoryOf(t, a); got != "" {
			return fmt.Errorf("the state file has %s", got)
		}
		return nil
	})
}

// memoryOf returns the memory of the only pod that has some in the state file of an agent, as JSON.
func memoryOf(t *testing.T, a *env.Agent) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(a.RootDir, "memory_manager_state"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Entries map[string]json.RawMessage }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, containers := range file.Entries {
		return string(containers)
	}
	return ""
}
