package steps

import (
	"context"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/plan"
)

const (
	// minGrace is the least time that a container gets between its stop signal and SIGKILL, with or
	// without hooks (upstream's minimumGracePeriodInSeconds).
	minGrace = 2 * time.Second
	// maxGraceSeconds is the longest grace that a time.Duration can hold.
	maxGraceSeconds = math.MaxInt64 / int64(time.Second)
)

// grace returns how long a container has from the beginning of its stop. It is zero if all
// containers start again. Otherwise it is, in this order, what the pod's stop asks for, what the
// failed probe has, or the pod's own grace.
func (s *Stopper) grace(p *Sync, k plan.Kill) time.Duration {
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

// shorten cuts short the stops under way that have more grace left than the pod's stop gives now. A
// hook is given up, and the stop signal is sent again.
func (s *Stopper) shorten(ctx context.Context, p *Sync) {
	if p.Stop == nil || p.Stop.Grace == nil {
		return
	}
	for _, c := range p.Observed.Running() {
		s.hasten(ctx, p, c, s.grace(p, plan.Kill{Container: c}))
	}
}

// shortenAsked cuts short the stops under way that have more grace left than an operator's request
// for a restart gives.
func (s *Stopper) shortenAsked(ctx context.Context, p *Sync) {
	for _, c := range p.Observed.Running() {
		if asked := p.Record.Asked[c.Id]; asked.Grace != nil {
			s.hasten(ctx, p, c, s.grace(p, plan.Kill{Container: c, Grace: asked.Grace}))
		}
	}
}

// hasten cuts short a container's stop under way that has more than grace left.
func (s *Stopper) hasten(ctx context.Context, p *Sync, c *plan.Container, grace time.Duration) {
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
