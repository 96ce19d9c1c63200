//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/berthd/berth/test/env"
)

// TestStaticCPUs checks that a Guaranteed container gets a CPU for itself under the static policy,
// without a quota, that the others leave it and come back, and that a crash of the agent changes
// nothing.
func TestStaticCPUs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	online, err := cpuset.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if online.Size() < 2 {
		t.Skip("a machine with one CPU has none to give away")
	}
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{Kubelet: "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n"})
	a.WaitUp(t)
	const spec = `
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, "trap 'exit 0' TERM; while true; do sleep 0.1; done"]
    %s
`
	put(t, a, "shares", fmt.Sprintf(spec, ""))
	a.WaitReady(t, "shares")
	put(t, a, "pinned", fmt.Sprintf(spec, `resources: {limits: {cpu: "1", memory: 20Mi}}`))
	a.WaitReady(t, "pinned")
	own := cpusOf(t, a, "pinned")
	if own.Size() != 1 || own.Contains(0) {
		t.Errorf("the container has the CPUs %s", own)
	}
	for _, container := range []string{"", "main"} {
		cgroupHas(t, e, podOf(t, a, "pinned"), container, map[string]string{"cpu/cpu.cfs_quota_us": "-1"})
	}
	waitCPUs(t, a, "shares", online.Difference(own))
	started := containerID(t, a, "pinned")
	a.Kill9()
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "shares", "pinned")
	if now := cpusOf(t, a, "pinned"); !now.Equals(own) || containerID(t, a, "pinned") != started {
		t.Errorf("after a crash of the agent the container has %s, before it had %s", now, own)
	}
	if state, err := os.ReadFile(filepath.Join(a.RootDir, "cpu_manager_state")); err != nil ||
		!strings.Contains(string(state), `{"main":"`+own.String()+`"}`) {
		t.Errorf("the state file is %s, %v", state, err)
	}
	a.RemoveManifest(t, "pinned.yaml")
	waitCPUs(t, a, "shares", online)
}

// cpusOf returns the CPUs on which the container of a pod may run.
func cpusOf(t *testing.T, a *env.Agent, pod string) cpuset.CPUSet {
	t.Helper()
	out, stderr, code := a.CLI("exec", pod, "--", "grep", "Cpus_allowed_list", "/proc/self/status")
	_, list, _ := strings.Cut(out, ":")
	set, err := cpuset.Parse(strings.TrimSpace(list))
	if err != nil || code != 0 {
		t.Fatalf("CPUs of %s: %q, %s, %v", pod, out, stderr, err)
	}
	return set
}

// waitCPUs waits until the container of a pod may run on these CPUs.
func waitCPUs(t *testing.T, a *env.Agent, pod string, want cpuset.CPUSet) {
	t.Helper()
	env.Eventually(t, pod+" to run on the CPUs "+want.String(), func() error {
		if got := cpusOf(t, a, pod); !got.Equals(want) {
			return fmt.Errorf("it runs on %s", got)
		}
		return nil
	})
}
