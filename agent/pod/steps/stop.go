package steps

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/pod/hooks"
	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/retry"
)

// The keys of tasks that stop a container; the container's id follows. stopTask is the runtime's
// stop. preStopTask waits for the preStop hook, as long as there is grace. hookTask is the hook
// itself.
const (
	stopTask    = "stop/"
	preStopTask = "preStop/"
	hookTask    = "preStopHook/"
)

// ofContainer reports whether the key is that of a task about a container.
func ofContainer(key string) bool {
	for _, prefix := range []string{stopTask, preStopTask, hookTask, postStartTask} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

const (
	// awayRetry and stopRetry are the longest waits before the runtime is asked again: awayRetry if
	// the runtime is away, stopRetry if it failed to stop a container.
	awayRetry = time.Second
	stopRetry = 10 * time.Second
)

// Stopper stops containers. This file has who is stopped and when; the preStop hook is in
// prestop.go, and how much grace a container has is in grace.go.
//
// A stop that has begun is in the pod's record until the container has ended. So a later sync, or
// another run of the agent, goes on with the stop: it neither runs the hook again nor begins the
// grace anew.
//
//	begun ── preStop hook, if any ──▶ hooked ── its turn, or no grace left ──▶ signaled ──▶ ended
type Stopper struct {
	Runtime cri.ContainerRuntime
	Hooks   *hooks.Runner
	Events  EventSink
	// HostIPs returns the node's addresses.
	HostIPs func() []string
	// GiveUp frees what of a pod waits for silent servers, and so does not end, see
	// [volumes.Manager.GiveUp].
	GiveUp func(context.Context, types.UID) error
}

// stopAll begins or goes on with every stop that plan asked for. It returns when a sync has to go
// on without being woken, zero for never.
func (s *Stopper) stopAll(ctx context.Context, p *Sync) (again time.Time) {
	for _, k := range p.Actions.Kill {
		again = Earlier(again, s.stop(ctx, p, k))
	}
	return again
}

// Resume goes on with the stops that have begun, before the sync meets anything that may fail.
// Whatever else fails in the pod, a container whose hook has run gets its signal.
func (s *Stopper) Resume(ctx context.Context, p *Sync) {
	for _, k := range p.Actions.Kill {
		if k.Reason == plan.KillBegun {
			s.stop(ctx, p, k)
		}
	}
}

// stop begins to stop a container or goes on with it, by one step in each sync. It returns when a
// sync has to go on without being woken. It returns zero if the end of a task will wake the worker.
func (s *Stopper) stop(ctx context.Context, p *Sync, k plan.Kill) (again time.Time) {
	id := k.Container.Id
	if p.Busy(id) == plan.Stopping {
		return time.Time{}
	}
	if _, begun := p.Record.Stops[id]; !begun {
		p.Tasks.Cancel(ctx, postStartTask+id)
		p.begin(id, s.grace(p, k))
		p.markKilled(k)
		s.Events.Pod(p.Pod, k.Container.Name(), v1.EventTypeNormal, "Killing", k.Message)
	}
	stop, spec := p.Record.Stops[id], specOf(k)
	left := stop.Left(time.Now())
	switch {
	case spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil && !stop.Hooked && left > 0:
		s.hook(p, spec, id, left)
	case k.Held && left > 0:
		return time.Now().Add(left)
	default:
		s.signal(p, spec.Name, id)
	}
	return time.Time{}
}

// begin records that a container is being stopped from now on.
func (p *Sync) begin(id string, grace time.Duration) {
	if p.Record.Stops == nil {
		p.Record.Stops = map[string]plan.ContainerStop{}
	}
	p.Record.Stops[id] = plan.ContainerStop{Since: time.Now(), Grace: grace}
}

// markKilled saves, before the stop begins, that a container is to start again whatever it ends
// with. It does nothing for other containers.
func (p *Sync) markKilled(k plan.Kill) {
	if !k.Again {
		return
	}
	p.Record.MarkKilledToRestart(k.Container.Id)
	if err := p.Save(); err != nil {
		p.Log.Warn("kill not noted: should the agent end before it is, the container may not start again",
			"container", k.Container.Name(), "err", err)
	}
}

// signal has the runtime stop a container.
func (s *Stopper) signal(p *Sync, name, id string) {
	stop := p.Record.Stops[id]
	stop.Signaled = true
	p.Record.Stops[id] = stop
	pod, log := p.Pod, p.Log
	p.start(stopTask+id, func(ctx context.Context) error { return s.end(ctx, pod, name, id, stop, log) })
}

// end has the runtime stop a container, again and again until the container has ended or ctx ends.
// The grace that is left shrinks meanwhile.
func (s *Stopper) end(
	ctx context.Context, pod *v1.Pod, name, id string, stop plan.ContainerStop, log *slog.Logger,
) error {
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		err := s.Runtime.StopContainer(ctx, id, max(stop.Left(time.Now()), minGrace))
		if err == nil || ctx.Err() != nil {
			return err
		}
		limit := awayRetry
		if !errdefs.IsUnavailable(err) {
			ended, known := s.ended(ctx, id)
			if ended {
				return nil
			}
			limit = stopRetry
			log.Warn("container not stopped; it is tried again", "container", name, "err", err)
			s.Events.Pod(pod, "", v1.EventTypeWarning, "FailedKillPod", "error killing pod: "+err.Error())
			if errdefs.IsDeadlineExceeded(err) && known { // even SIGKILL has not ended it
				if err := s.GiveUp(ctx, pod.UID); err != nil {
					log.Warn("what a container waits for is not given up", "container", name, "err", err)
				}
			}
		}
		if wait = min(wait, limit); !retry.Sleep(ctx, wait) {
			return err
		}
	}
}

// ended reports whether the runtime says that a container has ended or is gone, and whether it
// says anything.
func (s *Stopper) ended(ctx context.Context, id string) (ended, known bool) {
	status, err := s.Runtime.ContainerStatus(ctx, id)
	gone := errdefs.IsNotFound(err)
	return gone || err == nil && status.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED, gone || err == nil
}

// specOf returns the spec of a container that is to be stopped: the pod's, or, if the pod's spec is
// gone, what the container's annotations keep of it.
func specOf(k plan.Kill) *v1.Container {
	if k.Spec != nil {
		return k.Spec
	}
	spec := &v1.Container{Name: k.Container.Name()}
	if id, err := cri.ParseContainer(k.Container.Labels, k.Container.Annotations); !errors.Is(err, cri.ErrUnmanaged) {
		spec.Ports, spec.Lifecycle = id.Ports, &v1.Lifecycle{PreStop: id.PreStop}
	}
	return spec
}
