package desired

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/internal/pods"
)

// Whoever may make pods at the API server can give one the name of a static pod and the hash that
// the mirror shows. The static pod does not go on as that pod when the API server has it no more.
func TestStaticPodsDoNotGoOnAsPodsOfTheAPIServer(t *testing.T) {
	n := newNode(t, fake.New(fake.Config{}), handler{sync: func(context.Context, worker.Work) worker.Result {
		return worker.Result{}
	}})
	of := func(origin string, uid types.UID) *v1.Pod {
		p := podOf("x")
		p.UID, p.Spec.Containers = uid, []v1.Container{{Name: "c", Image: "i"}}
		p.Annotations = map[string]string{pods.AnnotationSource: origin, pods.AnnotationHash: "static"}
		return p
	}
	theirs, ours := of(pods.SourceAPI, "theirs"), of(pods.SourceFile, "static")
	n.workers.Set(theirs)
	n.workers.Set(ours)
	got := n.reconciler.continued(source.Update{Pods: map[types.UID]*v1.Pod{ours.UID: ours}})
	if got.Pods[ours.UID] != ours || len(got.Pods) != 1 {
		t.Errorf("the static pod is wanted as %v", got.Pods)
	}
	known := map[types.UID]worker.Entry{"theirs": {Pod: theirs}}
	if before := predecessor(of(pods.SourceFile, "changed"), known); before != nil {
		t.Errorf("pod %s counts as the predecessor", before.UID)
	}
}
