package room

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/internal/pods"
)

// A pod of the API server may be bound for a label of which the node has not heard yet: the Node
// object is read anew once, and others are decided on meanwhile.
func TestNodeIsReadAnewForPodsThatItDoesNotMatch(t *testing.T) {
	n := newNode(nil)
	here, there := map[string]string{}, map[string]string{"zone": "a"}
	reads := 0
	n.deps.Node = func() admit.Node { return admit.Node{Labels: here} }
	n.deps.Reread = func(context.Context) {
		n.Hold()()
		reads++
		here = there
	}
	inZone := func(uid types.UID, source, zone string) *v1.Pod {
		pod := podOf(uid, "100m")
		pod.Annotations = map[string]string{pods.AnnotationSource: source}
		if zone != "" {
			pod.Spec.NodeSelector = map[string]string{"zone": zone}
		}
		return pod
	}
	for _, c := range []struct {
		pod   *v1.Pod
		want  string
		reads int
	}{
		{inZone("static", pods.SourceFile, "a"), "refused", 0},
		{inZone("anywhere", pods.SourceAPI, ""), "runs", 0},
		{inZone("labelled", pods.SourceAPI, "a"), "runs", 1},
		{inZone("next", pods.SourceAPI, "a"), "runs", 1},
		{inZone("elsewhere", pods.SourceAPI, "b"), "refused", 2},
	} {
		if got := n.admit(t, c.pod); got != c.want || reads != c.reads {
			t.Errorf("%s %s after %d reads, want %s after %d", c.pod.Name, got, reads, c.want, c.reads)
		}
	}
}
