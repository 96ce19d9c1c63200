package podsapi

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/berthd/berth/internal/localrpc/localrpctest"
	"github.com/berthd/berth/internal/notify"
)

// node has pods, and tells of changes.
type node struct {
	changed notify.Signal

	mu   sync.Mutex
	list []*v1.Pod
}

func (n *node) Pods() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.list
}

// set replaces the pods. Each is "uid phase".
func (n *node) set(list ...string) {
	n.mu.Lock()
	n.list = nil
	for _, text := range list {
		uid, phase, _ := strings.Cut(text, " ")
		n.list = append(n.list, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + uid, UID: types.UID(uid)},
			Status:     v1.PodStatus{Phase: v1.PodPhase(phase)},
		})
	}
	n.mu.Unlock()
	n.changed.Notify()
}

// decoded returns a pod as "name uid phase".
func decoded(t *testing.T, data []byte) string {
	t.Helper()
	var pod v1.Pod
	if err := pod.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", pod.Name, pod.UID, pod.Status.Phase))
}

// serve runs a server and returns a client of it.
func serve(t *testing.T, n *node) (client podsapi.PodsClient, dir string) {
	t.Helper()
	top := localrpctest.Dir(t)
	dir = Dir(top)
	n.changed = notify.New()
	s := New(top, Deps{
		Pods:   n.Pods,
		Watch:  func() (<-chan struct{}, func()) { return n.changed, func() {} },
		Logger: slog.New(slog.DiscardHandler),
	})
	return podsapi.NewPodsClient(localrpctest.Serve(t, s.Run, filepath.Join(dir, SocketName))), dir
}

func TestAnswers(t *testing.T) {
	n := &node{}
	client, dir := serve(t, n)
	n.set("2 Pending", "1 Running")
	list, err := client.ListPods(t.Context(), &podsapi.ListPodsRequest{}, grpc.WaitForReady(true))
	if err != nil || len(list.GetPods()) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	if got := decoded(t, list.GetPods()[0]) + ", " + decoded(t, list.GetPods()[1]); got !=
		"pod-1 1 Running, pod-2 2 Pending" {
		t.Error(got)
	}
	one, err := client.GetPod(t.Context(), &podsapi.GetPodRequest{PodUID: "2"})
	if err != nil || decoded(t, one.GetPod()) != "pod-2 2 Pending" {
		t.Errorf("%v, %v", one, err)
	}
	_, err = client.GetPod(t.Context(), &podsapi.GetPodRequest{PodUID: "3"})
	if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "pod with UID 3 not found") {
		t.Error(err)
	}
	info, err := os.Stat(filepath.Join(dir, SocketName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others than root may connect", info.Mode(), err)
	}
}

// A watch begins with all pods, and goes on with what changes. What has not changed is not sent.
func TestWatch(t *testing.T) {
	n := &node{}
	client, _ := serve(t, n)
	n.set("1 Running", "2 Running")
	stream, err := client.WatchPods(t.Context(), &podsapi.WatchPodsRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want ...string) {
		t.Helper()
		for _, w := range want {
			event, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			got := event.GetType().String()
			if event.Pod != nil {
				got += " " + decoded(t, event.GetPod())
			}
			if got != w {
				t.Errorf("%q, want %q", got, w)
			}
		}
	}
	expect("ADDED pod-1 1 Running", "ADDED pod-2 2 Running", "INITIAL_SYNC_COMPLETE")
	n.set("1 Running", "2 Failed", "3 Pending")
	expect("MODIFIED pod-2 2 Failed", "ADDED pod-3 3 Pending")
	n.set("1 Running", "3 Pending")
	expect("DELETED pod-2 2")
	n.set("1 Succeeded", "3 Pending")
	expect("MODIFIED pod-1 1 Succeeded")
}
