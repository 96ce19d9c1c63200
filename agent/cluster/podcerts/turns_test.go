package podcerts

import (
	"context"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A pod that names any number of certificates has few requests out at once, and other pods get
// their certificates meanwhile. Requests that wait end with their pod, and leave nothing.
func TestOnePodsRequestsTakeTurns(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		var out, most atomic.Int64
		gate, account := make(chan struct{}), b.deps.Account
		b.deps.Account = func(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
			if name == "greedy" {
				for n := out.Add(1); n > most.Load(); {
					most.CompareAndSwap(most.Load(), n)
				}
				defer out.Add(-1)
				select {
				case <-gate:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return account(ctx, namespace, name)
		}
		greedy := func(uid string, n int) *v1.Pod {
			pod := podWith(uid, "ED25519")
			pod.Spec.ServiceAccountName = "greedy"
			sources := &pod.Spec.Volumes[len(pod.Spec.Volumes)-1].Projected.Sources
			for one := (*sources)[len(*sources)-1]; len(*sources) <= n; {
				*sources = append(*sources, one)
			}
			return pod
		}
		dropped, pod := greedy("dropped", 1000), greedy("pod", 20)
		b.Use(dropped)
		settle()
		if n := out.Load(); n != 4 {
			t.Errorf("%d requests of the pod are out", n)
		}
		b.Use(podWith("other", "ED25519"))
		if asked := b.asked(); len(asked) != 1 || asked[0].Spec.PodUID != "other" {
			t.Errorf("another pod has %d requests", len(asked))
		}
		b.Drop("dropped")
		settle()
		if n := b.turns.Pods(); n != 0 {
			t.Errorf("the turns of %d pods are left", n)
		}
		if n := out.Load(); n != 0 {
			t.Errorf("%d requests of a pod that is gone are out", n)
		}
		b.Use(pod)
		settle()
		close(gate)
		if asked := b.asked(); len(asked) != 21 {
			t.Errorf("%d requests wait for the signer", len(asked))
		}
		if n := most.Load(); n != 4 {
			t.Errorf("%d requests of the pod were out at once", n)
		}
	})
}
