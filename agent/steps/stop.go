package steps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/hooks"
	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/cri"
)

// stopTask is the key, before the container's id, of a container being stopped.
const stopTask = "stop/"

// StopTask returns the key under which a container is stopped.
func StopTask(containerID string) string { return stopTask + containerID }

const (
	// minGrace is the least time that a container gets between its stop signal and SIGKILL, hooks or not (upstream's
	// minimumGracePeriodInSeconds).
	minGrace = 2 * time.Second
	// defaultGrace is the grace of a pod of which nothing is known, in seconds (core/v1 DefaultTerminationGracePeriodSeconds).
	defaultGrace = 30
)

// Stopper stops containers.
type Stopper struct {
	Runtime cri.ContainerRuntime
	Hooks   *hooks.Runner
	Events  EventSink
	// HostIPs returns the node's addresses.
	HostIPs func() []string
}

// stop begins to stop a container: its preStop hook, then its stop signal, then SIGKILL, all within the grace.
func (s *Stopper) stop(ctx context.Context, p *Pass, k plan.Kill) {
	e := ending{pod: p.Pod, spec: k.Spec, id: k.Container.Id, podIP: s.podIP(p), hook: s.preStop(k), grace: s.grace(p, k), message: k.Message, log: p.Log}
	if e.spec == nil {
		e.spec = &v1.Container{Name: k.Container.Name()}
	}
	p.Tasks.Cancel(ctx, PostStartTask(e.id))
	p.Tasks.Start(StopTask(e.id), time.Now().Add(e.grace), func(ctx context.Context) error { return s.end(ctx, e) })
}

// ending is all that stopping one container takes.
type ending struct {
	pod       *v1.Pod
	spec      *v1.Container
	id, podIP string
	hook      *v1.LifecycleHandler
	grace     time.Duration
	message   string
	log       *slog.Logger
}

// end stops a container and returns once it has ended.
func (s *Stopper) end(ctx context.Context, e ending) error {
	s.Events.Pod(e.pod, e.spec.Name, v1.EventTypeNormal, "Killing", e.message)
	begin := time.Now()
	if e.hook != nil && e.grace > 0 {
		err := bounded(ctx, e.grace, func(ctx context.Context) error { return s.Hooks.Run(ctx, e.pod, e.podIP, e.spec, e.id, e.hook) })
		if err != nil && ctx.Err() == nil {
			e.log.Warn("preStop hook failed: the container is stopped all the same", "container", e.spec.Name, "err", err)
			s.Events.Pod(e.pod, e.spec.Name, v1.EventTypeWarning, hooks.ReasonFailedPreStopHook, hooks.MessageFailedPreStopHook)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := s.stopNow(ctx, e.id, max(e.grace-time.Since(begin), minGrace)); err != nil {
		if ctx.Err() == nil {
			s.Events.Pod(e.pod, "", v1.EventTypeWarning, "FailedKillPod", "error killing pod: "+err.Error())
		}
		return fmt.Errorf("stopping container %s: %w", e.spec.Name, err)
	}
	return nil
}

// shorten cuts short the stops under way that would outlast the grace that is now given: the hook is given up, and the stop signal sent again.
func (s *Stopper) shorten(ctx context.Context, p *Pass) {
	if p.Stop == nil || p.Stop.Grace == nil {
		return
	}
	for _, c := range p.Observed.Running() {
		k := plan.Kill{Container: c, Spec: findContainer(p.Pod, c.Name()), Reason: plan.KillPod, Message: "Stopping container " + c.Name()}
		deadline, active := p.Tasks.Deadline(StopTask(c.Id))
		grace := max(s.grace(p, k), minGrace)
		if !active || !time.Now().Add(grace+time.Second).Before(deadline) {
			continue
		}
		p.Tasks.Cancel(ctx, StopTask(c.Id))
		p.Tasks.Start(StopTask(c.Id), time.Now().Add(grace), func(ctx context.Context) error {
			return s.stopNow(ctx, c.Id, grace)
		})
	}
}

// stopNow has the runtime stop the container. While the runtime is away it waits for it to come back, so that a hook that has run is not run again.
func (s *Stopper) stopNow(ctx context.Context, id string, grace time.Duration) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := s.Runtime.StopContainer(ctx, id, grace)
		if !errdefs.IsUnavailable(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// bounded runs a hook for no longer than the grace.
func bounded(ctx context.Context, grace time.Duration, hook func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, grace, errors.New("the grace period is over"))
	defer cancel()
	return hook(ctx)
}

// preStop returns the container's hook: the spec's, or for a pod of which the spec is gone the one that its annotations keep.
func (s *Stopper) preStop(k plan.Kill) *v1.LifecycleHandler {
	if k.Spec != nil {
		if k.Spec.Lifecycle == nil {
			return nil
		}
		return k.Spec.Lifecycle.PreStop
	}
	id, err := cri.ParseContainer(k.Container.Labels, k.Container.Annotations)
	if err != nil {
		return nil
	}
	return id.PreStop
}

// grace returns how long the container has from now: what the stop asks for, else the failed probe's, else the pod's. A sidecar, which waits for its turn when
// the pod ends, has what those before it left of the pod's.
func (s *Stopper) grace(p *Pass, k plan.Kill) time.Duration {
	seconds := podGrace(p.Pod)
	switch {
	case p.Stop != nil && p.Stop.Grace != nil:
		seconds = *p.Stop.Grace
	case k.Grace != nil:
		seconds = *k.Grace
	}
	grace := time.Duration(seconds) * time.Second
	if p.Stop != nil && grace > 0 && sidecar(p.Pod, k.Container.Name()) {
		return max(grace-time.Since(p.Stop.Since), minGrace)
	}
	return grace
}

// sidecar reports whether the named container is an init container that goes on running.
func sidecar(pod *v1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c v1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
	})
}

// podGrace returns the pod's own grace in seconds.
func podGrace(pod *v1.Pod) int64 {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return *pod.DeletionGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return *pod.Spec.TerminationGracePeriodSeconds
	default:
		return defaultGrace
	}
}

func (s *Stopper) podIP(p *Pass) string {
	if p.Pod.Spec.HostNetwork {
		return first(s.HostIPs())
	}
	return first(SandboxIPs(p.Observed.Sandbox()))
}
