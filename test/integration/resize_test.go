//go:build integration

package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// sized is the spec of a pod with two containers that have these resources.
func sized(main, other string) string {
	return `
terminationGracePeriodSeconds: 1
containers:
  - {name: main, image: "berth.local/web:v1", args: [sleep], resources: ` + main + `}
  - {name: other, image: "berth.local/web:v1", args: [sleep], resources: ` + other + `}
`
}

// isResized waits until a pod's status has these memory limits and no resize is left.
func isResized(t *testing.T, a *env.Agent, name, memory string) *corev1.Pod {
	t.Helper()
	return waitPod(t, a, name, "resized", func(p *corev1.Pod) error {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
				return fmt.Errorf("it has the condition %s: %s %s", c.Type, c.Reason, c.Message)
			}
		}
		r := statusOf(p, "main").Resources
		if r == nil || r.Limits.Memory().String() != memory {
			return fmt.Errorf("its container has %+v", r)
		}
		return nil
	})
}

// unmoved fails unless a pod's containers are the same as before.
func unmoved(t *testing.T, before, now *corev1.Pod, containers ...string) {
	t.Helper()
	if before.UID != now.UID {
		t.Errorf("it is another pod: %s was %s", now.UID, before.UID)
	}
	for _, c := range containers {
		if b, n := statusOf(before, c), statusOf(now, c); b.ContainerID != n.ContainerID ||
			n.RestartCount != b.RestartCount {
			t.Errorf("container %s was restarted: %s was %s", c, n.ContainerID, b.ContainerID)
		}
	}
}

// TestResize checks that an edit of cpu and memory reaches the cgroups of the running containers
// and of the pod, up and down, over restarts and kills of the agent.
func TestResize(t *testing.T) {
	t.Parallel()
	for _, version := range []string{env.Containerd24, env.ContainerdDebian} {
		t.Run("containerd "+version, func(t *testing.T) {
			t.Parallel()
			e := env.Containerd(t, env.Options{Version: version})
			a := e.StartAgent(t, env.AgentOptions{})
			a.WaitUp(t)
			const other = "{requests: {cpu: 50m}, limits: {cpu: 100m, memory: 32Mi}}"
			put(t, a, "web", sized("{requests: {cpu: 100m}, limits: {cpu: 200m, memory: 32Mi}}", other))
			a.WaitReady(t, "web")
			p := podOf(t, a, "web")
			cgroupHas(t, e, p, "", map[string]string{
				"cpu/cpu.shares": "153", "cpu/cpu.cfs_quota_us": "30000", "memory/memory.limit_in_bytes": "67108864",
			})

			put(t, a, "web", sized("{requests: {cpu: 200m}, limits: {cpu: 400m, memory: 64Mi}}", other))
			waitEvent(t, a, "ResizeCompleted", "Pod resize completed")
			now := isResized(t, a, "web", "64Mi")
			unmoved(t, p, now, "main", "other")
			cgroupHas(t, e, now, "", map[string]string{
				"cpu/cpu.shares": "256", "cpu/cpu.cfs_quota_us": "50000", "memory/memory.limit_in_bytes": "100663296",
			})
			cgroupHas(t, e, now, "main", map[string]string{
				"cpu/cpu.shares": "204", "cpu/cpu.cfs_quota_us": "40000", "memory/memory.limit_in_bytes": "67108864",
			})
			cgroupHas(t, e, now, "other", map[string]string{
				"cpu/cpu.shares": "51", "cpu/cpu.cfs_quota_us": "10000", "memory/memory.limit_in_bytes": "33554432",
			})
			if r := statusOf(now, "main"); r.AllocatedResources.Cpu().String() != "200m" ||
				r.Resources.Limits.Cpu().String() != "400m" {
				t.Errorf("its status has %+v, allocated %v", r.Resources, r.AllocatedResources)
			}

			a.Kill9()
			a.WaitEnded(t)
			put(t, a, "web", sized("{requests: {cpu: 60m}, limits: {cpu: 120m, memory: 40Mi}}", other))
			if err := a.Start(); err != nil {
				t.Fatal(err)
			}
			now = isResized(t, a, "web", "40Mi")
			unmoved(t, p, now, "main", "other")
			cgroupHas(t, e, now, "", map[string]string{
				"cpu/cpu.cfs_quota_us": "22000", "memory/memory.limit_in_bytes": "75497472",
			})
			cgroupHas(t, e, now, "main", map[string]string{
				"cpu/cpu.cfs_quota_us": "12000", "memory/memory.limit_in_bytes": "41943040",
			})
			if err := a.Restart(); err != nil {
				t.Fatal(err)
			}
			a.WaitReady(t, "web")
			unmoved(t, p, podOf(t, a, "web"), "main", "other")

			put(t, a, "web",
				sized("{requests: {cpu: 60m}, limits: {cpu: 120m, memory: 40Mi}}", other)+"hostname: another\n")
			waitPod(t, a, "web", "another pod", func(n *corev1.Pod) error {
				if n.UID == p.UID || !env.Ready(n) {
					return errors.New("it is still the old one")
				}
				return nil
			})
			removed(t, e, a, "web")
		})
	}
}

// TestResizeBelowUsage checks that a memory limit is not set below the memory in use. The pod
// reports this and runs on, and is resized once that is possible.
func TestResizeBelowUsage(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	spec := func(memory string) string {
		return `
terminationGracePeriodSeconds: 1
containers:
  - {name: main, image: "berth.local/web:v1", args: [alloc, "64"], resources: {limits: {cpu: 200m, memory: ` + memory +
			`}}}
`
	}
	put(t, a, "greedy", spec("128Mi"))
	a.WaitReady(t, "greedy")
	env.Eventually(t, "the memory to be in use", func() error {
		if out, _, _ := a.CLI("logs", "greedy"); !strings.Contains(out, "allocated") {
			return errors.New("it is not yet")
		}
		return nil
	})
	p := podOf(t, a, "greedy")
	put(t, a, "greedy", spec("32Mi"))
	waitEvent(t, a, "ResizeError",
		`cannot decrease memory limits: [attempting to set pod memory limit (33554432) below current usage`)
	now := waitPod(t, a, "greedy", "told", func(p *corev1.Pod) error {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodResizeInProgress && c.Reason == corev1.PodReasonError {
				return nil
			}
		}
		return errors.New("there is no such condition")
	})
	unmoved(t, p, now, "main")
	if r := statusOf(now, "main").Resources; r.Limits.Memory().String() != "128Mi" {
		t.Errorf("it is told to have %v", r.Limits)
	}
	cgroupHas(t, e, now, "main", map[string]string{"memory/memory.limit_in_bytes": "134217728"})
	put(t, a, "greedy", spec("96Mi"))
	now = isResized(t, a, "greedy", "96Mi")
	unmoved(t, p, now, "main")
	cgroupHas(t, e, now, "", map[string]string{"memory/memory.limit_in_bytes": "100663296"})
	removed(t, e, a, "greedy")
}

// TestResizePolicy checks that a container with resizePolicy RestartContainer is restarted, that no
// other container is, and only for the resource that the policy names.
func TestResizePolicy(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	spec := func(resources string) string {
		return strings.Replace(sized(resources, "{requests: {cpu: 10m}}"), "{name: main,",
			"{name: main, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}],", 1)
	}
	put(t, a, "web", spec("{requests: {cpu: 100m}, limits: {cpu: 200m, memory: 32Mi}}"))
	a.WaitReady(t, "web")
	p := podOf(t, a, "web")
	put(t, a, "web", spec("{requests: {cpu: 100m}, limits: {cpu: 300m, memory: 32Mi}}"))
	env.Eventually(t, "the cpu limit", func() error {
		if r := statusOf(podOf(t, a, "web"), "main").Resources; r.Limits.Cpu().String() != "300m" {
			return fmt.Errorf("it is %v", r.Limits)
		}
		return nil
	})
	unmoved(t, p, podOf(t, a, "web"), "main", "other")
	put(t, a, "web", spec("{requests: {cpu: 100m}, limits: {cpu: 300m, memory: 64Mi}}"))
	waitEvent(t, a, "Killing", "Container main resize requires restart")
	waitPod(t, a, "web", "restarted", func(p *corev1.Pod) error {
		if n := statusOf(p, "main").RestartCount; n != 1 || !env.Ready(p) {
			return fmt.Errorf("%d restarts", n)
		}
		return nil
	})
	now := isResized(t, a, "web", "64Mi")
	unmoved(t, p, now, "other")
	cgroupHas(t, e, now, "main", map[string]string{
		"memory/memory.limit_in_bytes": "67108864", "cpu/cpu.cfs_quota_us": "30000",
	})
	removed(t, e, a, "web")
}

// TestPodLevelResources checks that resources of the whole pod limit its cgroup, are the defaults
// of its containers, and are resized like those of containers.
func TestPodLevelResources(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	spec := func(whole string) string {
		return `
terminationGracePeriodSeconds: 1
resources: ` + whole + `
containers:
  - name: main
    image: berth.local/web:v1
    args: [sleep]
    env:
      - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
      - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
  - {name: own, image: "berth.local/web:v1", args: [sleep], resources: {limits: {cpu: 100m, memory: 32Mi}}}
`
	}
	put(t, a, "web", spec("{requests: {cpu: 200m, memory: 64Mi}, limits: {cpu: 400m, memory: 128Mi}}"))
	a.WaitReady(t, "web")
	p := podOf(t, a, "web")
	if p.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("its class is %s", p.Status.QOSClass)
	}
	cgroupHas(t, e, p, "", map[string]string{
		"cpu/cpu.shares": "204", "cpu/cpu.cfs_quota_us": "40000", "memory/memory.limit_in_bytes": "134217728",
	})
	cgroupHas(t, e, p, "main", map[string]string{
		"cpu/cpu.cfs_quota_us": "40000", "memory/memory.limit_in_bytes": "134217728",
	})
	cgroupHas(t, e, p, "own", map[string]string{
		"cpu/cpu.cfs_quota_us": "10000", "memory/memory.limit_in_bytes": "33554432",
	})
	if environment := inside(t, a, "web", "main", "/testapp", "env"); !strings.Contains(environment, "CPU=400\n") ||
		!strings.Contains(environment, "MEMORY=128\n") {
		t.Errorf("its environment is %q", environment)
	}
	put(t, a, "web", spec("{requests: {cpu: 200m, memory: 64Mi}, limits: {cpu: 300m, memory: 96Mi}}"))
	waitEvent(t, a, "ResizeCompleted", "Pod resize completed")
	now := waitPod(t, a, "web", "resized", func(p *corev1.Pod) error {
		if r := p.Status.Resources; r == nil || r.Limits.Memory().String() != "96Mi" ||
			r.Limits.Cpu().String() != "300m" {
			return fmt.Errorf("it has %+v", r)
		}
		return nil
	})
	unmoved(t, p, now, "main", "own")
	cgroupHas(t, e, now, "", map[string]string{
		"cpu/cpu.cfs_quota_us": "30000", "memory/memory.limit_in_bytes": "100663296",
	})
	cgroupHas(t, e, now, "main", map[string]string{
		"cpu/cpu.cfs_quota_us": "30000", "memory/memory.limit_in_bytes": "100663296",
	})
	cgroupHas(t, e, now, "own", map[string]string{"memory/memory.limit_in_bytes": "33554432"})

	put(t, a, "exact",
		strings.Replace(spec("{limits: {cpu: 200m, memory: 64Mi}}"), "limits: {cpu: 100m, memory: 32Mi}",
			"requests: {cpu: 10m}", 1))
	a.WaitReady(t, "exact")
	exact := podOf(t, a, "exact")
	if exact.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("its class is %s", exact.Status.QOSClass) // the pod's requests are its containers'
	}
	removed(t, e, a, "exact")
	removed(t, e, a, "web")
}
