package steps

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/pod/plan"
)

// What a pod waits for during its initialisation: the init container that runs, or the sidecar that
// has not started (a sidecar never ends).
func TestCurrentInitContainer(t *testing.T) {
	runs := func(names ...string) (o plan.Observed) {
		for _, name := range names {
			o.Containers = append(o.Containers,
				&plan.Container{SandboxID: "s", ContainerStatus: &runtimeapi.ContainerStatus{
					Metadata: &runtimeapi.ContainerMetadata{Name: name},
					State:    runtimeapi.ContainerState_CONTAINER_RUNNING,
				}})
		}
		return o
	}
	always := ptr.To(v1.ContainerRestartPolicyAlways)
	pod := &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{
		{
			Name: "plain", RestartPolicy: always,
		}, {Name: "first"}, {
			Name: "probed", RestartPolicy: always,
			StartupProbe: &v1.Probe{},
		}, {
			Name: "second",
		},
	}}}
	for name, c := range map[string]struct {
		observed plan.Observed
		want     string
	}{
		"nothing runs":                       {runs(), ""},
		"a sidecar with its postStart hook":  {runs("plain"), "sidecar plain to start"},
		"an init container beside a sidecar": {runs("plain", "first"), "init container first to end"},
		"a sidecar with a startup probe":     {runs("plain", "probed"), "sidecar probed to pass its startup probe"},
		"the last init container":            {runs("plain", "probed", "second"), "init container second to end"},
	} {
		if got := (Init{}).current(&Sync{
			Given:   Given{Pod: pod},
			Seen:    Seen{Observed: c.observed},
			Actions: plan.Actions{SandboxID: "s"},
		}); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
