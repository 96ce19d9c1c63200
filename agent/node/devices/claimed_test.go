package devices

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/deviceplugin"
)

// A container that has its cards by a resource claim gets none of the plugin. Without the feature
// gate the claim does not matter.
func TestCardsByClaim(t *testing.T) {
	b := start(t, shortDir(t))
	b.plug(deviceplugin.Config{Devices: on("a@0", "b@0", "c@1")})
	pod := podOf("one", "app 2", "side 1")
	pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "made", RequestMappings: []v1.ContainerExtendedResourceRequest{
			{ContainerName: "app", ResourceName: card, RequestName: "container-0-request-0"},
			{ContainerName: "side", ResourceName: "example.com/other", RequestName: "container-1-request-0"},
		},
	}
	claimed := podOf("two", "app 2")
	claimed.Status = pod.Status
	for gate, want := range map[bool]struct {
		has, hints, podHints string
		wants                bool
	}{
		false: {"app=a,b side=c", "1: [0]!,[01]", "1: [01]!", true},
		true:  {"side=a", "0: ", "1: [0]!,[1]!,[01]", false},
	} {
		b.cfg.ByClaim = gate
		p := b.Begin(pod, never)
		if got := text(p.Hints(&pod.Spec.Containers[0])); got != want.hints {
			t.Errorf("gate %v: hints %s, want %s", gate, got, want.hints)
		}
		if got := text(p.PodHints()); got != want.podHints {
			t.Errorf("gate %v: hints of the pod %s, want %s", gate, got, want.podHints)
		}
		if got := b.Wants(claimed); got != want.wants || !b.Wants(pod) {
			t.Errorf("gate %v: wants cards: %v", gate, got)
		}
		b.give(pod)
		if _, err := b.Container(t.Context(), pod, &pod.Spec.Containers[0]); err != nil {
			t.Error(err)
		}
		if got := b.has("one"); got != want.has {
			t.Errorf("gate %v: %s, want %s", gate, got, want.has)
		}
		b.Release("one")
	}
}
