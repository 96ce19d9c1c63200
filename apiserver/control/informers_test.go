package control

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// TestHandlersWaitForTheGate shows that a controller's handler is not called before the controllers
// run, though the API server's informer has its objects already, and misses none of them then.
func TestHandlersWaitForTheGate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "early"}})
	server := informers.NewSharedInformerFactory(client, 0)
	pods := server.Core().V1().Pods().Informer()

	gate := make(chan struct{})
	shared, err := gatedInformers(ctx, client, server, gate)
	if err != nil {
		t.Fatal(err)
	}
	if got := shared.Core().V1().Pods().Informer().GetStore(); got != pods.GetStore() {
		t.Error("the API server's pods are in memory twice")
	}
	seen := make(chan string, 1)
	registration, err := shared.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			seen <- object.(*corev1.Pod).Name
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	if registration.HasSynced() || len(seen) > 0 {
		t.Error("the handler has seen the pod before the gate is open")
	}
	close(gate)
	if name := <-seen; name != "early" {
		t.Errorf("it sees %s", name)
	}
}

// TestHandlersEndWithoutTheGate shows that nobody waits for a gate that is never opened.
func TestHandlersEndWithoutTheGate(t *testing.T) {
	done := make(chan struct{})
	close(done)
	h := gated{gate: make(chan struct{}), done: done}.behind(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { t.Error("the handler is called") },
	})
	h.OnAdd(nil, true)
}
