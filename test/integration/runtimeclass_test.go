//go:build integration

package integration

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/env"
)

// cgroupHas compares files of a pod's cgroup, and of the cgroup of one of its containers, with
// want. The keys are "controller/file".
func cgroupHas(t *testing.T, e *env.Env, p *corev1.Pod, container string, want map[string]string) {
	t.Helper()
	if unified() {
		t.Log("limits are looked at on cgroup v1 only")
		return
	}
	below := ""
	if container != "" {
		_, below, _ = strings.Cut(statusOf(p, container).ContainerID, "://")
	}
	for name, value := range want {
		controller, file := filepath.Split(name)
		env.Eventually(t, fmt.Sprintf("%s of %s %s to be %s", name, p.Name, container, value), func() error {
			if got := lines(filepath.Join(podCgroup(e, controller, p), below, file)); len(got) != 1 || got[0] != value {
				return fmt.Errorf("it is %q", got)
			}
			return nil
		})
	}
}

// TestRuntimeClass checks that a pod runs with the handler, the overhead and the node selector of
// its RuntimeClass. A pod waits for a missing RuntimeClass, and reports a handler that the runtime
// does not have.
func TestRuntimeClass(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	const class = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: "
	put(t, a, "second", `
runtimeClassName: second
terminationGracePeriodSeconds: 1
containers:
  - {name: main, image: "berth.local/web:v1", args: [sleep], resources: {limits: {cpu: 100m, memory: 32Mi}}}
`)
	put(t, a, "unknown", `
runtimeClassName: unknown
terminationGracePeriodSeconds: 1
containers:
  - {name: main, image: "berth.local/web:v1", args: [sleep]}
`)
	waitEvent(t, a, "FailedCreatePodSandBox", `RuntimeClass "second" not found`)
	waitPod(t, a, "second", "waiting", phase(corev1.PodPending))
	env.Eventually(t, "why to say what it waits for", func() error {
		if timeline := why(t, a, "second"); !strings.Contains(timeline.WaitsFor, `RuntimeClass "second" not found`) {
			return fmt.Errorf("it is %q", timeline.WaitsFor)
		}
		return nil
	})
	a.WriteManifest(t, "classes.yaml",
		class+"second}\nhandler: "+env.SecondHandler+"\noverhead: {podFixed: {cpu: 50m, memory: 16Mi}}\n"+
			"scheduling: {nodeSelector: {kubernetes.io/os: linux}}\n---\n"+class+"unknown}\nhandler: unheard-of\n")
	a.WaitReady(t, "second")
	p := podOf(t, a, "second")
	if got := p.Spec.Overhead; got.Cpu().String() != "50m" || got.Memory().String() != "16Mi" ||
		p.Spec.NodeSelector[corev1.LabelOSStable] != "linux" {
		t.Errorf("the pod has overhead %v and node selector %v", got, p.Spec.NodeSelector)
	}
	for _, s := range sandboxesOf(t, e, p) {
		st, err := e.Runtime().PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.Id})
		if err != nil || st.Status.RuntimeHandler != env.SecondHandler {
			t.Errorf("its sandbox has the handler %q, %v", st.GetStatus().GetRuntimeHandler(), err)
		}
	}
	cgroupHas(t, e, p, "", map[string]string{
		"memory/memory.limit_in_bytes": "50331648", "cpu/cpu.cfs_quota_us": "15000", "cpu/cpu.shares": "153",
	})
	cgroupHas(t, e, p, "main", map[string]string{
		"memory/memory.limit_in_bytes": "33554432", "cpu/cpu.cfs_quota_us": "10000",
	})

	waitEvent(t, a, "FailedCreatePodSandBox", `"unheard-of"`)
	waitPod(t, a, "unknown", "told why", func(p *corev1.Pod) error {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionFalse &&
				strings.Contains(c.Message, `no runtime for "unheard-of" is configured`) {
				return nil
			}
		}
		return errors.New("the condition does not say it")
	})

	// A RuntimeClass that is removed does not affect its pod, also over a restart of the agent.
	a.RemoveManifest(t, "classes.yaml")
	if err := a.Restart(); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "second")
	now := podOf(t, a, "second")
	if now.UID != p.UID || statusOf(now, "main").ContainerID != statusOf(p, "main").ContainerID ||
		now.Spec.Overhead.Memory().String() != "16Mi" {
		t.Errorf("without its class it is %s with overhead %v", statusOf(now, "main").ContainerID, now.Spec.Overhead)
	}
	removed(t, e, a, "unknown")
	removed(t, e, a, "second")
}
