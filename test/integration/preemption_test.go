//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// TestCriticalPodTakesARoom checks that a critical pod takes the place of another pod on a full
// node, and that the other one runs again when the critical pod is gone.
func TestCriticalPodTakesARoom(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{Kubelet: "maxPods: 2\n"})
	a.WaitUp(t)
	const spec = `
%s
containers:
  - name: main
    image: berth.local/web:v1
    args: [sleep]
`
	put(t, a, "web", fmt.Sprintf(spec, "priority: 10"))
	put(t, a, "least", fmt.Sprintf(spec, "priority: 5"))
	a.WaitReady(t, "web", "least")
	put(t, a, "needed", fmt.Sprintf(spec, "priorityClassName: system-node-critical"))
	p := waitPod(t, a, "least", "preempted", func(p *corev1.Pod) error {
		if s := p.Status; s.Phase != corev1.PodFailed || s.Reason != "Preempting" ||
			s.Message != "Preempted in order to admit critical pod" {
			return fmt.Errorf("%s %s %q", s.Phase, s.Reason, s.Message)
		}
		return nil
	})
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated == nil {
			t.Errorf("container %s: %+v", c.Name, c.State)
		}
	}
	a.WaitReady(t, "web", "needed")
	waitEvent(t, a, "Preempting", "least")
	if w := why(t, a, "least"); !strings.Contains(w.Ended, "it runs again when the node has room for it") {
		t.Errorf("why: %q", w.Ended)
	}

	a.RemoveManifest(t, "needed.yaml")
	a.WaitReady(t, "web", "least")
}
