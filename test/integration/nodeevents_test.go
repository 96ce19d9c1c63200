//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/env"
)

// TestNodeEvents checks that an agent that starts writes its own event and those of the node's
// cgroups once, in the kubelet's words.
func TestNodeEvents(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	want := []string{
		"Normal Starting: Starting kubelet.",
		"Normal NodeAllocatableEnforced: Updated Node Allocatable limit across pods",
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		want = append(want,
			"Warning CgroupV1: cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future "+
				"release. "+
				"Please migrate to cgroup v2. More information at "+
				"https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1")
	}
	env.Eventually(t, "the node's events", func() error {
		var errs []error
		var seen []string
		for _, ev := range answers[api.EventList](t, a, "events").Items {
			if ev.InvolvedObject.Kind == "Node" && ev.Count == 1 && ev.Namespace == corev1.NamespaceDefault {
				seen = append(seen, ev.Type+" "+ev.Reason+": "+ev.Message)
			}
		}
		for _, w := range want {
			if got := strings.Count(strings.Join(seen, "\n")+"\n", w+"\n"); got != 1 {
				errs = append(errs, fmt.Errorf("%d times %q in %q", got, w, seen))
			}
		}
		return errors.Join(errs...)
	})
}
