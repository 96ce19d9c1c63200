package watched

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/source/objects"
)

// greedy is how many objects the pod uses that uses too many.
const greedy = 1000

// gated is a server that answers about objects whose names begin with "slow" only when the test
// says so.
type gated struct {
	*server
	gate      atomic.Pointer[chan struct{}] // closed when it answers
	out, most atomic.Int64
	calls     atomic.Int64
}

// gateOf puts a gated server before the watcher's own.
func gateOf(b *bench) *gated {
	g := &gated{server: b.server}
	g.shut()
	b.api = g
	return g
}

func (g *gated) open() { close(*g.gate.Load()) }

func (g *gated) shut() {
	gate := make(chan struct{})
	g.gate.Store(&gate)
}

func (g *gated) pass(ctx context.Context, key objects.Key) error {
	if !strings.HasPrefix(key.Name, "slow") {
		return nil
	}
	g.calls.Add(1)
	for n := g.out.Add(1); n > g.most.Load(); {
		g.most.CompareAndSwap(g.most.Load(), n)
	}
	defer g.out.Add(-1)
	select {
	case <-*g.gate.Load():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gated) list(ctx context.Context, key objects.Key) ([]objects.Object, string, error) {
	if err := g.pass(ctx, key); err != nil {
		return nil, "", err
	}
	return g.server.list(ctx, key)
}

func (g *gated) watch(ctx context.Context, key objects.Key, version string) (watch.Interface, error) {
	if err := g.pass(ctx, key); err != nil {
		return nil, err
	}
	return g.server.watch(ctx, key, version)
}

func (g *gated) get(ctx context.Context, key objects.Key) (objects.Object, error) {
	if err := g.pass(ctx, key); err != nil {
		return nil, err
	}
	return g.server.get(ctx, key)
}

// expect compares the requests about slow objects that are out, once nothing is running any more.
func (g *gated) expect(t *testing.T, want int64) {
	t.Helper()
	synctest.Wait()
	if got := g.out.Load(); got != want {
		t.Errorf("%d requests are out, want %d", got, want)
	}
}

func slowNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("slow-", i))
	}
	return names
}

// A pod that uses any number of objects has few requests out at once, and other pods get their
// objects meanwhile: also those that wait for the first pod's turn.
func TestOnePodsRequestsTakeTurns(t *testing.T) {
	run(t, func(b *bench) {
		g := gateOf(b)
		for _, name := range append(slowNames(greedy), "quick", "shared") {
			b.server.put(configMap(name, "is "+name))
		}
		pod := podWith("1", append(slowNames(greedy), "shared")...)
		pod.Spec.EnableServiceLinks = nil
		b.Use(pod)
		g.expect(b.t, 4)
		if _, read := b.Services(pod); !read {
			t.Error("what all pods share waits for one pod's turn")
		}
		second := podWith("2", "quick", "shared")
		b.Use(second)
		for _, name := range []string{"quick", "shared"} {
			if got := b.value(second, name); got != "is "+name {
				t.Errorf("another pod's object %s: %s", name, got)
			}
		}
		g.open()
		g.expect(b.t, 0)
		if got := b.value(pod, "slow-999"); got != "is slow-999" {
			t.Error(got)
		}
		if n := len(b.server.watches); n != greedy+4 {
			t.Errorf("%d watches", n)
		}
		time.Sleep(time.Minute)
		g.shut()
		b.server.drop() // every watch is opened again
		g.expect(b.t, 4)
		if n := g.most.Load(); n != 4 {
			t.Errorf("%d requests of the pod were out at once", n)
		}
		// A watch that does not open keeps its turn no longer than another request would.
		time.Sleep(requestTimeout + time.Second)
		g.expect(b.t, 8)
		g.open()
		g.expect(b.t, 0)
		if n := len(b.server.watches); n != greedy+4 {
			t.Errorf("%d watches", n)
		}
		b.server.put(configMap("slow-7", "new"))
		if got := b.value(pod, "slow-7"); got != "new" {
			t.Error(got)
		}
	})
}

// The same holds for claims, and for lists after a failure.
func TestRetriesAndClaimsTakeTurns(t *testing.T) {
	run(t, func(b *bench) {
		g := gateOf(b)
		b.server.failing(func(_ string, key objects.Key) error {
			if strings.HasPrefix(key.Name, "slow") {
				return errAway
			}
			return nil
		})
		pod := podWith("1", slowNames(100)...)
		for _, name := range slowNames(100) {
			pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
		b.Use(pod)
		g.expect(b.t, 4)
		g.open()
		time.Sleep(2 * kube.Retry.Most)
		g.shut()
		time.Sleep(2 * kube.Retry.Most) // each is tried again
		g.expect(b.t, 4)
		if n := g.most.Load(); n != 4 {
			t.Errorf("%d requests of the pod were out at once", n)
		}
		if n := g.calls.Load(); n < 6*100 {
			t.Errorf("%d requests: they were not tried again", n)
		}
		g.open()
		b.Drop("1")
	})
}

// Requests that wait end with their pod, and leave nothing.
func TestWaitingRequestsEnd(t *testing.T) {
	run(t, func(b *bench) {
		g := gateOf(b)
		b.Use(podWith("1", slowNames(greedy)...))
		b.Use(podWith("2", slowNames(greedy)...))
		g.expect(b.t, 8)
		b.Drop("2")
		b.Drop("1")
		b.rounds.Wait()
		g.expect(b.t, 0)
		if n := b.turns.Pods(); n != 0 {
			t.Errorf("the turns of %d pods are left", n)
		}
		if n := g.most.Load(); n != 8 {
			t.Errorf("%d requests of two pods were out at once", n)
		}
	})
}
