//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/test/env"
)

// TestReservedCgroup checks that the agent limits the cgroup that has the reserved amounts, and
// that it does not start if this cgroup does not exist.
func TestReservedCgroup(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		t.Skip("reads the files of cgroup v1")
	}
	e := env.Containerd(t, env.Options{})
	a, err := e.NewAgent(t.Context(), env.AgentOptions{Kubelet: fmt.Sprintf(`
systemReserved: {cpu: 250m, memory: 300Mi, pid: "900"}
systemReservedCgroup: /berth-reserved-%[1]d
enforceNodeAllocatable: [pods, system-reserved]
`, os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the agent to end", func() error {
		select {
		case <-a.Done():
			return nil
		default:
			return fmt.Errorf("it runs: %s", a.LogTail())
		}
	})
	if log := a.LogTail(); !strings.Contains(log, "has some missing paths") || !strings.Contains(log, "make the cgroup") {
		t.Errorf("the log ends with %s", log)
	}

	dirs := map[string]string{}
	for _, controller := range []string{"cpu", "cpuacct", "cpuset", "hugetlb", "memory", "pids"} {
		mount := filepath.Join("/sys/fs/cgroup", controller)
		if _, err := os.Stat(mount); err != nil {
			continue
		}
		dirs[controller] = filepath.Join(mount, fmt.Sprintf("berth-reserved-%d", os.Getpid()))
		if err := os.Mkdir(dirs[controller], 0o755); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dirs[controller]) })
	}
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	a.WaitUp(t)
	waitEvent(t, a, "NodeAllocatableEnforced", "Updated limits on system reserved cgroup /berth-reserved-")
	for file, want := range map[string]string{
		filepath.Join(dirs["cpu"], "cpu.shares"):               "256",
		filepath.Join(dirs["memory"], "memory.limit_in_bytes"): "314572800",
		filepath.Join(dirs["pids"], "pids.max"):                "900",
	} {
		text, err := os.ReadFile(file)
		if got := strings.TrimSpace(string(text)); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %s", file, got, err, want)
		}
	}
}
