package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/agent/server"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/tasks"
	"github.com/berthd/berth/agent/worker"
)

var _ server.Backend = (*Agent)(nil)

// NewServer returns the HTTP API of this agent, which does not listen before its Run. setVerbosity sets how much the agent logs, as the kubelet's flag -v says; nil
// where nobody may.
func (a *Agent) NewServer(version string, setVerbosity func(level uint32)) (*server.Server, error) {
	usage := a.newStats()
	if err := a.metrics.Registry.Register(usage.Claims()); err != nil {
		return nil, fmt.Errorf("register the metrics of claims: %w", err)
	}
	deps := server.Deps{Runtime: a.deps.Runtime, Drainer: a, Stats: usage, SetVerbosity: setVerbosity, Metrics: a.metrics, Tracing: a.deps.Tracing, Logger: a.log}
	if a.cfg.ServesAPI() {
		if err := a.secure(&deps); err != nil {
			return nil, fmt.Errorf("preparing the API's port: %w", err)
		}
	}
	return server.New(server.ConfigFrom(a.cfg, a.node.Name, version), a, deps)
}

// Pods returns every pod of the node with its status, by namespace and name. A pod that nobody wants any more has a deletion time as soon as that is on
// record, and comes after its successor of the same name. The pods are the caller's, what they point to must not be modified.
func (a *Agent) Pods() []*v1.Pod {
	entries := a.workers.List()
	pods := make([]*v1.Pod, 0, len(entries))
	for uid, e := range entries {
		if placeholder(e.Pod) && e.Phase == worker.Running {
			continue // found in the runtime; its source has not claimed it yet
		}
		pod := *a.ephemerals.with(e.Pod)
		switch s, ok := a.status.Get(uid); {
		case ok:
			pod.Status = *s.Status
		case e.Forget || e.Phase != worker.Running:
			continue // it has gone since the workers were listed
		default:
			pod.Status = v1.PodStatus{Phase: v1.PodPending}
		}
		if e.Recorded && pod.DeletionTimestamp == nil {
			at := metav1.NewTime(e.Leaving.Truncate(time.Second))
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
			ring(bell)
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
	if begun := a.timeline.UnderWay(uid); begun.Step != "" {
		story.UnderWay, story.UnderWayFor = begun.Step, time.Since(begun.Since)
	}
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
		if !tasks.Sleep(ctx, 100*time.Millisecond) {
			return last
		}
	}
}
