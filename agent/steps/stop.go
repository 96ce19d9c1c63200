package steps

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/hooks"
	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/agent/tasks"
	"github.com/berthd/berth/cri"
)

// stopTask and preStopTask are the keys, before the container's id, of a container being stopped by the runtime and of its preStop hook, which is waited for as long as
// there is grace. hookTask is the hook itself.
const (
	stopTask    = "stop/"
	preStopTask = "preStop/"
	hookTask    = "preStopHook/"
)

// ofContainer reports whether a task of that key is about a container.
func ofContainer(key string) bool {
	for _, prefix := range []string{stopTask, preStopTask, hookTask, postStartTask} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

const (
	// minGrace is the least time that a container gets between its stop signal and SIGKILL, hooks or not (upstream's
	// minimumGracePeriodInSeconds).
	minGrace = 2 * time.Second
	// maxGraceSeconds is the longest grace that a time.Duration can hold.
	maxGraceSeconds = math.MaxInt64 / int64(time.Second)
	// awayRetry and stopRetry are how long to wait at most before a runtime that is away, or that failed to stop a container, is asked again.
	awayRetry = time.Second
	stopRetry = 10 * time.Second
	// hookOvertime is how long a hook may outlive the grace at most: it ends with its container, minGrace later, unless the runtime fails to stop that.
	hookOvertime = minGrace + stopRetry
)

// errGraceOver is what came of a hook that needs more than the grace.
var errGraceOver = errors.New("the grace period is over")

// Stopper stops containers. A stop, once begun, is in the pod's record until the container has ended, so that whoever goes on with it, after a failure or as
// another run of the agent, neither runs the hook again nor begins the grace anew:
//
//	begun ── preStop hook, if any ──▶ hooked ── its turn, or no grace left ──▶ signaled ──▶ ended
type Stopper struct {
	Runtime cri.ContainerRuntime
	Hooks   *hooks.Runner
	Events  EventSink
	// HostIPs returns the node's addresses.
	HostIPs func() []string
}

// stopAll begins or goes on with every stop that plan asked for, and returns when a pass has to go on without being woken; zero for never.
func (s *Stopper) stopAll(ctx context.Context, p *Pass) (again time.Time) {
	for _, k := range p.Actions.Kill {
		again = Earlier(again, s.stop(ctx, p, k))
	}
	return again
}

// Resume goes on with the stops that have begun, before the pass meets anything that may fail: whatever else a pod lacks, a container whose hook has run
// gets its signal.
func (s *Stopper) Resume(ctx context.Context, p *Pass) {
	for _, k := range p.Actions.Kill {
		if k.Reason == plan.KillBegun {
			s.stop(ctx, p, k)
		}
	}
}

// stop begins to stop a container or goes on with it, by one step in each pass. It returns when a pass has to go on without being woken, zero where the
// end of a task will wake the worker.
func (s *Stopper) stop(ctx context.Context, p *Pass, k plan.Kill) (again time.Time) {
	id := k.Container.Id
	if p.Busy(id) == plan.Stopping {
		return time.Time{}
	}
	if _, begun := p.Record.Stops[id]; !begun {
		p.Tasks.Cancel(ctx, postStartTask+id)
		p.begin(id, s.grace(p, k))
		p.condemn(k)
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

// begin notes that a container is being stopped from now on.
func (p *Pass) begin(id string, grace time.Duration) {
	if p.Record.Stops == nil {
		p.Record.Stops = map[string]plan.ContainerStop{}
	}
	p.Record.Stops[id] = plan.ContainerStop{Since: time.Now(), Grace: grace}
}

// condemn notes that a container is to start again whatever it ends with, where it is, before anything of its stop is done.
func (p *Pass) condemn(k plan.Kill) {
	if !k.Again {
		return
	}
	p.Record.Condemn(k.Container.Id)
	if err := p.Save(); err != nil {
		p.Log.Warn("kill not noted: should the agent end before it is, the container may not start again", "container", k.Container.Name(), "err", err)
	}
}

// hook runs a container's preStop hook and waits for it no longer than the grace that is left. Its end, or that of the grace, is noted by [Collect]. A hook that needs more
// is not cut off: it has until the container's SIGKILL, as a kubelet's has.
func (s *Stopper) hook(p *Pass, spec *v1.Container, id string, left time.Duration) {
	pod, podIP, log, group := p.Pod, s.podIP(p), p.Log, p.Tasks
	p.start(preStopTask+id, func(ctx context.Context) error {
		ended := make(chan error, 1)
		group.Start(hookTask+id, func(ctx context.Context) error {
			bounded, cancel := context.WithTimeout(ctx, left+hookOvertime)
			defer cancel()
			err := s.Hooks.Run(bounded, pod, podIP, spec, id, spec.Lifecycle.PreStop)
			ended <- err
			return err
		})
		timer := time.NewTimer(left)
		defer timer.Stop()
		var err error
		select {
		case err = <-ended:
		case <-timer.C:
			err = errGraceOver
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("preStop hook failed: the container is stopped all the same", "container", spec.Name, "err", err)
			s.Events.Pod(pod, spec.Name, v1.EventTypeWarning, hooks.ReasonFailedPreStopHook, hooks.Message(hooks.ReasonFailedPreStopHook, err))
		}
		return err
	})
}

// signal has the runtime stop a container.
func (s *Stopper) signal(p *Pass, name, id string) {
	stop := p.Record.Stops[id]
	stop.Signaled = true
	p.Record.Stops[id] = stop
	pod, log := p.Pod, p.Log
	p.start(stopTask+id, func(ctx context.Context) error { return s.end(ctx, pod, name, id, stop, log) })
}

// end has the runtime stop a container, again and again until it has ended or ctx does: the grace that is left shrinks meanwhile.
func (s *Stopper) end(ctx context.Context, pod *v1.Pod, name, id string, stop plan.ContainerStop, log *slog.Logger) error {
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		err := s.Runtime.StopContainer(ctx, id, max(stop.Left(time.Now()), minGrace))
		if err == nil || ctx.Err() != nil {
			return err
		}
		limit := awayRetry
		if !errdefs.IsUnavailable(err) {
			if s.ended(ctx, id) {
				return nil
			}
			limit = stopRetry
			log.Warn("container not stopped; it is tried again", "container", name, "err", err)
			s.Events.Pod(pod, "", v1.EventTypeWarning, "FailedKillPod", "error killing pod: "+err.Error())
		}
		if wait = min(wait, limit); !tasks.Sleep(ctx, wait) {
			return err
		}
	}
}

// ended reports whether the runtime says that a container has ended or is gone.
func (s *Stopper) ended(ctx context.Context, id string) bool {
	status, err := s.Runtime.ContainerStatus(ctx, id)
	return errdefs.IsNotFound(err) || err == nil && status.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
}

// shorten cuts short the stops under way that have more grace left than is now given: a hook is given up, and a stop signal sent again.
func (s *Stopper) shorten(ctx context.Context, p *Pass) {
	if p.Stop == nil || p.Stop.Grace == nil {
		return
	}
	for _, c := range p.Observed.Running() {
		s.hasten(ctx, p, c, s.grace(p, plan.Kill{Container: c}))
	}
}

// hasten cuts short a container's stop under way that has more than grace left.
func (s *Stopper) hasten(ctx context.Context, p *Pass, c *plan.Container, grace time.Duration) {
	stop, begun := p.Record.Stops[c.Id]
	if !begun || stop.Left(time.Now()) < max(grace, minGrace)+time.Second {
		return
	}
	for _, key := range []string{preStopTask + c.Id, hookTask + c.Id, stopTask + c.Id} {
		p.Tasks.Cancel(ctx, key)
		delete(p.busy, key)
	}
	p.Record.Stops[c.Id] = plan.ContainerStop{Since: time.Now(), Grace: grace, Hooked: true}
	if stop.Signaled {
		s.signal(p, c.Name(), c.Id)
	}
}

// specOf returns the spec of a container that is to be stopped: the pod's, or for a pod of which the spec is gone as much as the container's annotations keep.
func specOf(k plan.Kill) *v1.Container {
	if k.Spec != nil {
		return k.Spec
	}
	spec := &v1.Container{Name: k.Container.Name()}
	if id, err := cri.ParseContainer(k.Container.Labels, k.Container.Annotations); !errors.Is(err, cri.ErrForeign) {
		spec.Ports, spec.Lifecycle = id.Ports, &v1.Lifecycle{PreStop: id.PreStop}
	}
	return spec
}

// grace returns how long a container has from the beginning of its stop: nothing where all start again, what the pod's stop asks for, else the failed probe's,
// else the pod's.
func (s *Stopper) grace(p *Pass, k plan.Kill) time.Duration {
	seconds := podGrace(p.Pod)
	switch {
	case k.Reason == plan.KillRestartAll:
		seconds = 0
	case p.Stop != nil && p.Stop.Grace != nil:
		seconds = *p.Stop.Grace
	case k.Grace != nil:
		seconds = *k.Grace
	}
	return time.Duration(min(max(seconds, 0), maxGraceSeconds)) * time.Second
}

// podGrace returns the pod's own grace in seconds.
func podGrace(pod *v1.Pod) int64 {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return *pod.DeletionGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return *pod.Spec.TerminationGracePeriodSeconds
	default:
		return v1.DefaultTerminationGracePeriodSeconds
	}
}

func (s *Stopper) podIP(p *Pass) string {
	if p.Pod.Spec.HostNetwork {
		return first(s.HostIPs())
	}
	return first(SandboxIPs(p.Observed.Sandbox()))
}
