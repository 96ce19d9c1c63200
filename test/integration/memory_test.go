//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berthd/berth/test/deviceplugin"
	"github.com/berthd/berth/test/env"
)

// TestStaticMemory checks that a Guaranteed container gets memory of NUMA nodes under the policy
// Static, together with its CPU under the topology manager, that the kubelet's file says so, also
// after a crash of the agent, that nothing is left of it when the pod is gone, and that a pod whose
// device is on another node is refused.
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
	refusedByTopology(t, a)
	a.RemoveManifest(t, "bound.yaml")
	env.Eventually(t, "the memory to be given back", func() error {
		if got := memoryOf(t, a); got != "" {
			return fmt.Errorf("the state file has %s", got)
		}
		return nil
	})
}

// refusedByTopology checks that a pod whose device is on no NUMA node of this machine is refused,
// as by a kubelet.
func refusedByTopology(t *testing.T, a *env.Agent) {
	t.Helper()
	device := deviceplugin.Devices("a")[0]
	device.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: 63}}}
	plugIn(t, a, deviceplugin.Config{
		Dir: filepath.Join(a.RootDir, "device-plugins"), Socket: "card.sock", Resource: "example.com/card",
		Devices: []*pluginapi.Device{device},
	})
	put(t, a, "apart", fmt.Sprintf(cardPod, 1))
	const message = "Resources cannot be allocated with Topology locality"
	waitPod(t, a, "apart", "refused", func(p *corev1.Pod) error {
		if s := p.Status; s.Phase != corev1.PodFailed || s.Reason != "TopologyAffinityError" ||
			s.Message != "Pod was rejected: "+message {
			return fmt.Errorf("%s %s %q", s.Phase, s.Reason, s.Message)
		}
		return nil
	})
	if out, stderr, _ := a.CLI("events"); !strings.Contains(out, "TopologyAffinityError") ||
		!strings.Contains(out, message) {
		t.Errorf("the events are %s %s", out, stderr)
	}
	const metric = `kubelet_container_aligned_compute_resources_failure_count{boundary="numa_node",scope="container"} 1`
	if metrics := page(t, a, "/metrics"); !strings.Contains(metrics, metric) {
		t.Errorf("the metrics lack %s", metric)
	}
}

// memoryOf returns the memory of the only pod that has some in the state file of an agent, as
// JSON.
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
