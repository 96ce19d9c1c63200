//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/berthd/berth/test/env"
)

// TestStaticCPUs checks that a Guaranteed container gets a CPU for itself under the static policy,
// without a quota, that the others leave it and come back, and that a crash of the agent changes
// nothing.
func TestStaticCPUs(t *testing.T) {
	t.Parallel()
	online := onlineCPUs(t)
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

// TestCPUsOfAWholePod checks that a pod with resources of its own has its CPU as a whole under the
// feature gate PodLevelResourceManagers: its containers share it, and keep their quota. A crash of
// the agent changes nothing, and a pod whose containers would share nothing fails.
func TestCPUsOfAWholePod(t *testing.T) {
	t.Parallel()
	online := onlineCPUs(t)
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{Kubelet: "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n" +
		"topologyManagerPolicy: best-effort\ntopologyManagerScope: pod\n" +
		"featureGates: {PodLevelResourceManagers: true}\n"})
	a.WaitUp(t)
	const spec = `
resources: {requests: {cpu: "1", memory: 40Mi}, limits: {cpu: "1", memory: 40Mi}}
containers:
  - name: main
    image: berth.local/busybox:v1
    command: &forever [sh, -c, "trap 'exit 0' TERM; while true; do sleep 0.1; done"]
    %s
  - {name: other, image: "berth.local/busybox:v1", command: *forever}
`
	put(t, a, "full", fmt.Sprintf(spec, `resources: {limits: {cpu: "1", memory: 20Mi}}`))
	waitPod(t, a, "full", "failed", func(p *corev1.Pod) error {
		if p.Status.Reason != "EmptyPodSharedPoolError" {
			return fmt.Errorf("its reason is %q", p.Status.Reason)
		}
		return nil
	})
	put(t, a, "whole", fmt.Sprintf(spec, ""))
	a.WaitReady(t, "whole")
	own := cpusOf(t, a, "whole")
	if own.Size() != 1 || own.Contains(0) || !own.IsSubsetOf(online) {
		t.Errorf("the pod has the CPUs %s", own)
	}
	has := func(when string) {
		t.Helper()
		for _, container := range []string{"main", "other"} {
			got := inside(t, a, "whole", container, "grep", "Cpus_allowed_list", "/proc/self/status")
			if _, list, _ := strings.Cut(got, ":"); strings.TrimSpace(list) != own.String() {
				t.Errorf("%s, %s has %q, want %s", when, container, got, own)
			}
		}
	}
	has("at first")
	for _, container := range []string{"", "main"} {
		cgroupHas(t, e, podOf(t, a, "whole"), container, map[string]string{"cpu/cpu.cfs_quota_us": "100000"})
	}
	a.Kill9()
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "whole")
	has("after a crash of the agent")
	if state, err := os.ReadFile(filepath.Join(a.RootDir, "cpu_manager_state")); err != nil ||
		!strings.Contains(string(state), `{"cpuSet":"`+own.String()+`"}`) {
		t.Errorf("the state file is %s, %v", state, err)
	}
}

// onlineCPUs returns the machine's CPUs. It skips a test on a machine with one CPU.
func onlineCPUs(t *testing.T) cpuset.CPUSet {
	t.Helper()
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
	return online
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
