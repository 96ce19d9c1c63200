package agent

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/agent/server"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/worker"
	"github.com/berthd/berth/client/api"
)

var _ server.Backend = (*Agent)(nil)

// NewServer returns the HTTP API of this agent, which does not listen before its Run.
func (a *Agent) NewServer(version string) (*server.Server, error) {
	return server.New(server.ConfigFrom(a.cfg, a.node.Name, version), a, server.Deps{Runtime: a.deps.Runtime, Metrics: a.metrics, Logger: a.log})
}

// Pods returns every pod of the node with its status, by namespace and name. A pod that nobody wants any more has a deletion time, and comes after its
// successor of the same name. The pods are the caller's, what they point to must not be modified.
func (a *Agent) Pods() []*v1.Pod {
	entries := a.workers.List()
	pods := make([]*v1.Pod, 0, len(entries))
	for uid, e := range entries {
		if placeholder(e.Pod) && e.Phase == worker.Running {
			continue // found in the runtime; its source has not claimed it yet
		}
		pod := *e.Pod
		if s, ok := a.status.Get(uid); ok {
			pod.Status = *s.Status
		} else {
			pod.Status = v1.PodStatus{Phase: v1.PodPending}
		}
		if e.Forget && pod.DeletionTimestamp == nil {
			at := metav1.NewTime(a.leavingSince(uid))
			pod.DeletionTimestamp = &at
		}
		pods = append(pods, &pod)
	}
	slices.SortFunc(pods, func(x, y *v1.Pod) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name),
			cmp.Compare(leaving(x), leaving(y)), strings.Compare(string(x.UID), string(y.UID)))
	})
	return pods
}

func leaving(pod *v1.Pod) int {
	if pod.DeletionTimestamp != nil {
		return 1
	}
	return 0
}

// leavingSince returns when the pod's way down began, as far as its timeline knows.
func (a *Agent) leavingSince(uid podUID) time.Time {
	for _, e := range a.timeline.Get(uid) {
		if strings.HasPrefix(e.Step, server.RemovePrefix) {
			return e.Begin.Truncate(time.Second)
		}
	}
	return time.Now().Truncate(time.Second)
}

// WatchPods returns a channel that receives after any pod's status has changed, and a function that ends the watch.
func (a *Agent) WatchPods() (changed <-chan struct{}, stop func()) {
	sub := a.status.Subscribe()
	bell := make(chan struct{}, 1)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-sub.Changed():
			}
			sub.Take()
			select {
			case bell <- struct{}{}:
			default:
			}
		}
	}()
	return bell, func() {
		close(end)
		<-ended
		sub.Close()
	}
}

// Story returns what a pod's worker did and does.
func (a *Agent) Story(uid podUID) (server.Story, bool) {
	e, ok := a.workers.List()[uid]
	if !ok {
		return server.Story{}, false
	}
	story := server.Story{Phase: e.Phase.String(), Successor: e.Waiting, RetryAt: e.RetryAt, Entries: a.timeline.Get(uid)}
	for _, step := range a.steps {
		story.Ladder = append(story.Ladder, step.Name())
	}
	return story, true
}

// KillPods cuts the grace of every pod short: what still runs is killed after the least time that containers get.
func (a *Agent) KillPods() {
	least := int64(2) // seconds, as in steps.Stopper
	for uid := range a.workers.List() {
		a.workers.Stop(uid, worker.Stop{Grace: &least})
	}
}

// Dismantle removes the node's cgroups after Run has returned, for an agent that nobody will follow. It fails where there are pods left.
func (a *Agent) Dismantle(ctx context.Context) error {
	if c, ok := a.deps.Cgroups.(interface {
		Teardown(ctx context.Context) error
	}); ok {
		return c.Teardown(ctx)
	}
	return nil
}

// Events returns the kept events, those that happened last at the end.
func (a *Agent) Events() []v1.Event { return a.events.List() }

// WatchEvents returns the kept events, a channel of those that follow, and a function that ends the watch.
func (a *Agent) WatchEvents() (kept []v1.Event, following <-chan v1.Event, stop func()) {
	return a.events.Subscribe()
}

// Verdicts returns what became of each document of each manifest.
func (a *Agent) Verdicts() []source.Verdict {
	a.desired.mu.Lock()
	defer a.desired.mu.Unlock()
	return a.desired.last.Verdicts
}

// Pulls returns the images that are being fetched, or were and failed.
func (a *Agent) Pulls() []api.Pull {
	progress := a.images.Progress()
	out := make([]api.Pull, 0, len(progress))
	for _, p := range progress {
		pull := api.Pull{Image: p.Image, State: string(p.State), Since: p.Since, Message: p.Error, Waiters: len(p.Pods)}
		if !p.RetryAt.IsZero() {
			pull.RetryAt = &p.RetryAt
		}
		out = append(out, pull)
	}
	return out
}

// AwaitRuntime waits until the container runtime answers, and returns its last error if ctx ends first.
func (a *Agent) AwaitRuntime(ctx context.Context) error {
	var last error
	for {
		_, err := a.deps.Runtime.Version(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return last
		}
	}
}
