//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/env"
)

// TestMisbehavingPods has one pod after another misbehave beside pods that do not. That pod, and no
// other, is stopped with the kubelet's reason. No other pod restarts, and afterwards the node lacks
// nothing. It runs alone: a pod that is evicted has half a minute to end until another one is.
func TestMisbehavingPods(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		t.Skip("the working set of all pods includes what they write to files, in other amounts than under cgroup v1")
	}
	e := env.Containerd(t, env.Options{})
	a, err := e.NewAgent(t.Context(), env.AgentOptions{Kubelet: env.HogOptions(t)})
	if err != nil {
		t.Fatal(err)
	}
	e.SmallDisk(t, a)
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	a.WaitUp(t)
	var names []string
	for i := range env.Bystanders {
		names = append(names, "bystander-"+strconv.Itoa(i))
		put(t, a, names[i], env.BystanderSpec)
	}
	a.WaitReady(t, names...)
	began := instances(t, a)
	evictions := map[string]int{}
	for _, c := range env.Hogs {
		put(t, a, c.Name, c.Spec)
		if c.Message == "" {
			waitPod(t, a, c.Name, "ended", phase(corev1.PodFailed))
		} else {
			waitPod(t, a, c.Name, "evicted", evicted(c.Message))
			evictions[c.Signal]++
		}
		env.Eventually(t, "the node to lack nothing after "+c.Name, func() error {
			var status api.NodeStatus
			if err := json.Unmarshal([]byte(page(t, a, api.PathStatus)), &status); err != nil {
				return err
			}
			if len(status.Pressure) > 0 {
				return fmt.Errorf("it has %v", status.Pressure)
			}
			return nil
		})
		a.RemoveManifest(t, c.Name+".yaml")
		a.WaitGone(t, c.Name)
	}
	if now := instances(t, a); !maps.Equal(now, began) {
		t.Errorf("the other pods' containers are %v, and were %v", now, began)
	}
	a.WaitReady(t, names...)
	for signal, want := range evictions {
		if got := metric(t, a, fmt.Sprintf("kubelet_evictions{eviction_signal=%q}", signal)); got != strconv.Itoa(want) {
			t.Errorf("%s evictions because of %s, want %d", got, signal, want)
		}
	}
}

// instances returns the containers of all pods with their restart counts, by the pods' names.
func instances(t *testing.T, a *env.Agent) map[string]string {
	t.Helper()
	pods, err := a.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for i := range pods {
		for _, s := range pods[i].Status.ContainerStatuses {
			out[pods[i].Name] = fmt.Sprintf("%s, %d restarts", s.ContainerID, s.RestartCount)
		}
	}
	return out
}
