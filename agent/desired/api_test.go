package desired

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The worker of a pod hears of the claims that others make for the pod, and not of what the node
// has reported itself.
func TestSameFromAPI(t *testing.T) {
	name := "made"
	for what, test := range map[string]struct {
		change func(s *v1.PodStatus)
		same   bool
	}{
		"the address": {func(s *v1.PodStatus) { s.PodIP = "192.0.2.7" }, true},
		"the end":     {func(s *v1.PodStatus) { s.Phase = v1.PodFailed }, false},
		"a claim of a template": {func(s *v1.PodStatus) {
			s.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &name}}
		}, false},
		"a claim for extended resources": {func(s *v1.PodStatus) {
			s.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: name}
		}, false},
	} {
		var pod v1.Pod
		test.change(&pod.Status)
		if sameFromAPI(&v1.Pod{}, &pod) != test.same {
			t.Errorf("%s: the same is not %v", what, test.same)
		}
	}
}
