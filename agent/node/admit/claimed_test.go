package admit

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// What containers have by a resource claim takes nothing of the node's extended resources.
func TestResourcesByClaim(t *testing.T) {
	claimed := asking("o", "example.com/gpu=2")
	claimed.Spec.Containers[0].Name = "app"
	claimed.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
		RequestMappings: []v1.ContainerExtendedResourceRequest{{ContainerName: "app", ResourceName: "example.com/gpu"}},
	}
	in := Input{Pod: claimed, Allocatable: amounts("example.com/gpu=1,pods=3"), Node: Node{ByClaim: true}}
	if r := Check(in); r != nil {
		t.Errorf("the pod is refused: %+v", r)
	}
	in.Pod, in.Others = asking("p", "example.com/gpu=1"), []*v1.Pod{claimed}
	if r := Check(in); r != nil {
		t.Errorf("a pod beside it is refused: %+v", r)
	}
	in.Others = append(in.Others, asking("q", "example.com/gpu=1"))
	if r := Check(in); r == nil || !strings.Contains(r.Detail, "requested by ns/q (1)") ||
		strings.Contains(r.Detail, "ns/o") {
		t.Errorf("a pod for which nothing is left: %+v", r)
	}
	in.Node.ByClaim, in.Others = false, []*v1.Pod{claimed}
	if r := Check(in); r == nil || r.Reason != "OutOfexample.com/gpu" {
		t.Errorf("without the feature gate: %+v", r)
	}
}
