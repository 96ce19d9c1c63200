//go:build integration

package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/berthd/berth/test/env"
)

// TestPodsAPI checks that a program on the node follows a pod from its start to its end, without an
// API server.
func TestPodsAPI(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{Kubelet: "featureGates: {PodsAPI: true}\n"})
	a.WaitUp(t)
	conn, err := grpc.NewClient("unix://"+filepath.Join(a.RootDir, "pods-api/pods-api.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := podsapi.NewPodsClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	stream, err := client.WatchPods(ctx, &podsapi.WatchPodsRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	// until reads events up to one for which the function returns true
	until := func(what string, is func(kind podsapi.EventType, pod *corev1.Pod) bool) {
		t.Helper()
		for {
			event, err := stream.Recv()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			pod := &corev1.Pod{}
			if err := pod.Unmarshal(event.GetPod()); err != nil {
				t.Fatal(err)
			}
			if is(event.GetType(), pod) {
				return
			}
		}
	}
	until("the end of the list", func(kind podsapi.EventType, _ *corev1.Pod) bool {
		return kind == podsapi.EventType_INITIAL_SYNC_COMPLETE
	})
	put(t, a, "followed", sleeper)
	var uid string
	var ready bool // a late look has one event of a pod that is there and ready
	until("a new pod", func(kind podsapi.EventType, pod *corev1.Pod) bool {
		uid, ready = string(pod.UID), env.Ready(pod)
		return kind == podsapi.EventType_ADDED && pod.Name == "followed-"+env.NodeName
	})
	if !ready {
		until("a ready pod", func(kind podsapi.EventType, pod *corev1.Pod) bool {
			return kind == podsapi.EventType_MODIFIED && env.Ready(pod)
		})
	}
	one, err := client.GetPod(t.Context(), &podsapi.GetPodRequest{PodUID: uid})
	if err != nil || len(one.GetPod()) == 0 {
		t.Errorf("%v, %v", one, err)
	}
	list, err := client.ListPods(t.Context(), &podsapi.ListPodsRequest{})
	if err != nil || len(list.GetPods()) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	a.RemoveManifest(t, "followed.yaml")
	until(fmt.Sprintf("the end of pod %s", uid), func(kind podsapi.EventType, pod *corev1.Pod) bool {
		return kind == podsapi.EventType_DELETED && string(pod.UID) == uid
	})
}
