package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	agentcluster "github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/test/env"
)

// Witness follows all pods of a cluster in the API and reports what disturbs them. It goes on when
// the API server goes away and comes back. [Cluster.Witness] makes it.
type Witness struct {
	client *agentcluster.Client[v1.Pod, *v1.Pod]

	mu     sync.Mutex
	pods   map[string]*v1.Pod
	heard  chan struct{} // closed at the next change
	strict bool
	seen   []string
	hear   func(p *v1.Pod, gone bool)
}

// Witness starts to follow pods, until the test ends.
func (c *Cluster) Witness(t testing.TB) *Witness {
	t.Helper()
	conn, err := agentcluster.New(c.Config(), agentcluster.Config{QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := agentcluster.Pods(conn)
	if err != nil {
		t.Fatal(err)
	}
	w := &Witness{client: pods, pods: map[string]*v1.Pod{}, heard: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		pods.Follow(ctx, "", "", agentcluster.Handler[*v1.Pod]{
			Replace: w.replace, Set: w.set, Remove: w.remove, Logger: slog.New(slog.DiscardHandler),
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func key(p *v1.Pod) string { return p.Namespace + "/" + p.Name }

func (w *Witness) replace(items []*v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := map[string]*v1.Pod{}
	for _, p := range items {
		now[key(p)] = p
	}
	for k, p := range w.pods {
		if now[k] == nil {
			w.gone(p)
		}
	}
	for _, p := range now {
		w.take(p)
	}
	w.notify()
}

func (w *Witness) set(p *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.take(p)
	w.notify()
}

func (w *Witness) remove(p *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone(p)
	w.notify()
}

func (w *Witness) notify() {
	close(w.heard)
	w.heard = make(chan struct{})
}

// take records a pod's newest version, and the disturbances in it.
func (w *Witness) take(p *v1.Pod) {
	if old := w.pods[key(p)]; old != nil && w.strict && old.DeletionTimestamp == nil {
		w.seen = append(w.seen, disturbances(old, p)...)
	}
	w.pods[key(p)] = p
	if w.hear != nil {
		w.hear(p, false)
	}
}

func (w *Witness) gone(p *v1.Pod) {
	if w.strict && p.DeletionTimestamp == nil {
		w.seen = append(w.seen, key(p)+" is gone")
	}
	delete(w.pods, key(p))
	if w.hear != nil {
		w.hear(p, true)
	}
}

// OnChange calls hear with every change of a pod from now on, at once and one after the other.
func (w *Witness) OnChange(hear func(p *v1.Pod, gone bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hear = hear
}

// disturbances returns what must not happen to a pod that nobody touches.
func disturbances(old, p *v1.Pod) []string {
	var out []string
	note := func(format string, args ...any) { out = append(out, key(p)+" "+fmt.Sprintf(format, args...)) }
	if old.UID != p.UID {
		note("was %s and is %s", old.UID, p.UID)
	}
	if p.DeletionTimestamp != nil {
		note("is deleted")
	}
	if old.Status.Phase != p.Status.Phase {
		note("was %s and is %s %s", old.Status.Phase, p.Status.Phase, p.Status.Reason)
	}
	if env.Ready(old) && !env.Ready(p) {
		note("is not ready any more: %s", env.Describe([]v1.Pod{*p}))
	}
	if before, now := Identity(old), Identity(p); before != now {
		note("had %s and has %s", before, now)
	}
	return out
}

// Identity returns what must stay the same for a pod that is not disturbed: its address while it
// runs, and for each container its id, its start, and its restart count.
func Identity(p *v1.Pod) string {
	out := string(p.UID)
	if p.Status.Phase == v1.PodRunning {
		out += " " + p.Status.PodIP
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		at := ""
		if c.State.Running != nil {
			at = c.State.Running.StartedAt.UTC().String()
		}
		out += fmt.Sprint("; ", c.Name, " ", c.ContainerID, " ", at, " ", c.RestartCount)
	}
	return out
}

// Strict turns the recording of disturbances on or off.
func (w *Witness) Strict(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.strict = on
}

// Check fails the test for each recorded disturbance, unless one of the given texts is in it. It
// then drops the disturbances.
func (w *Witness) Check(t testing.TB, when string, but ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seen {
		if !slices.ContainsFunc(but, func(text string) bool { return strings.Contains(s, text) }) {
			t.Errorf("%s: pod %s", when, s)
		}
	}
	w.seen = nil
}

// Pod returns the newest version of a pod of the namespace default, nil if there is none.
func (w *Witness) Pod(name string) *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods["default/"+name]
}

// Identities returns what must stay the same for each pod, by name.
func (w *Witness) Identities() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]string{}
	for k, p := range w.pods {
		out[k] = Identity(p)
	}
	return out
}

// Wait waits until the condition holds for the pods, by namespace/name.
func (w *Witness) Wait(ctx context.Context, holds func(pods map[string]*v1.Pod) bool) error {
	for {
		w.mu.Lock()
		ok, heard := holds(w.pods), w.heard
		w.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-heard:
		}
	}
}
