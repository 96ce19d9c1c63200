package pod

import (
	"log/slog"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
)

// Every pod with a spec is listed, whatever has become of it.
func TestListed(t *testing.T) {
	pool := worker.New(t.Context(), worker.Config{}, slog.New(slog.DiscardHandler))
	defer pool.Close()
	pool.Start(hangingSyncs{})
	found := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "found", Namespace: "ns", Name: "found"}}
	ended := found.DeepCopy()
	ended.UID, ended.Name, ended.Spec.Containers = "ended", "ended", []v1.Container{{Name: "a"}}
	pool.Adopt(found, worker.State{})
	pool.Adopt(ended, worker.State{Phase: worker.Terminated})
	if got := Listed(pool); len(got) != 1 || got[0].UID != "ended" {
		t.Errorf("%v", got)
	}
}

// Commands take the first pod of a name: the static one, and of those the one that stays.
func TestOrderOfPodsWithOneName(t *testing.T) {
	of := func(uid types.UID, source string, ends *metav1.Time) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			UID: uid, Namespace: "ns", Name: "web", DeletionTimestamp: ends,
			Annotations: map[string]string{pods.AnnotationSource: source},
		}}
	}
	now := metav1.Now()
	list := []*v1.Pod{
		of("1", pods.SourceAPI, nil), of("2", pods.SourceFile, &now), of("3", pods.SourceHTTP, nil),
		of("4", pods.SourceAPI, &now), of("5", "", nil),
	}
	slices.SortFunc(list, inOrder)
	var got []types.UID
	for _, pod := range list {
		got = append(got, pod.UID)
	}
	if want := []types.UID{"3", "2", "1", "5", "4"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
