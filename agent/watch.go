package agent

import (
	"context"
	"time"

	"github.com/containerd/errdefs"

	"github.com/berthd/berth/agent/observe"
	"github.com/berthd/berth/agent/tasks"
	"github.com/berthd/berth/cri"
)

// watchRuntime turns the runtime's events into wakes, and lists everything whenever the stream breaks. A runtime without events is listed
// every second. One that was away is asked again what it is: it may have come back as another version.
func (a *Agent) watchRuntime(ctx context.Context) error {
	met := true // before the first pod
	for wait := 50 * time.Millisecond; ctx.Err() == nil; {
		began := time.Now()
		events, err := a.deps.Runtime.Events(ctx)
		answers := a.relist(ctx) // whether or not there are events: what was missed meanwhile is seen
		met = answers && (met || a.meetRuntime(ctx))
		if err == nil {
			a.drain(ctx, events)
			met = false
		}
		if ctx.Err() != nil {
			break
		}
		switch {
		case errdefs.IsNotImplemented(err):
			wait = time.Second
		case time.Since(began) > time.Second:
			wait = 50 * time.Millisecond
			a.log.Warn("the runtime's event stream ended; subscribing again", "err", err)
			a.expectLeftovers()
		default:
			wait = min(2*wait, time.Second)
		}
		tasks.Sleep(ctx, wait)
	}
	return nil //nolint:nilerr // an error of the stream is the reason for another round, not for an end
}

// drain wakes the workers of the pods that events are about, until the stream ends.
func (a *Agent) drain(ctx context.Context, events <-chan cri.Event) {
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-events:
			if !ok {
				return
			}
			if e.Type == cri.ContainerStopped && a.observer.Exited(e.ID, e.Exit) && !e.Time.IsZero() {
				a.metrics.ExitSeen(time.Since(e.Time))
			}
			uid := podUID(e.PodUID)
			if uid == "" {
				uid, _ = a.observer.Owner(e.ID)
			}
			if uid != "" {
				a.workers.Wake(uid)
			} else if e.Type != cri.ContainerDeleted {
				a.askRelist()
			}
		}
	}
}

// askRelist has everything listed soon, by relists: as often as it is asked while one listing is under way, one more follows.
func (a *Agent) askRelist() { ring(a.relistAsked) }

// relists lists everything when it is asked to, and now and then, should an event have been lost.
func (a *Agent) relists(ctx context.Context) error {
	tick := time.NewTicker(a.cfg.Berth.RelistPeriod.Duration)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.relistAsked:
		case <-tick.C:
		}
		a.relist(ctx)
	}
}

// relist lists everything, wakes the workers of pods that differ from what they last observed, and takes notice of pods without one. It reports
// whether the runtime answered.
func (a *Agent) relist(ctx context.Context) bool {
	listed, err := a.observer.Relist(ctx)
	if err != nil {
		if ctx.Err() == nil {
			a.log.Debug("listing the runtime's pods failed", "err", err)
		}
		return false
	}
	a.foreign.keep(func(uid podUID) bool { return listed[uid] != nil })
	for uid, l := range listed {
		if !l.Changed {
			continue
		}
		if _, ok := a.workers.Get(uid); ok {
			a.workers.Wake(uid)
		} else {
			a.takeIn(ctx, uid, l)
		}
	}
	return true
}

// takeIn makes a worker for a listed pod that had none, if there is still something of it, and forgets it if there is not. Another listing may be doing the same: one does it
// after the other, so that none goes by what it saw before the other's worker came and went.
func (a *Agent) takeIn(ctx context.Context, uid podUID, l *observe.Listed) {
	select {
	case a.takingIn <- struct{}{}:
		defer func() { <-a.takingIn }()
	case <-ctx.Done():
		return
	}
	switch _, ok := a.workers.Get(uid); {
	case ok:
		a.workers.Wake(uid)
	case l.Name != "" && a.remains(ctx, uid, l):
		a.adopt(uid, l)
		ring(a.desired.strays)
	default:
		a.observer.Forget(uid)
	}
}

// remains reports whether the runtime still has something of a pod without a worker: it may have gone, and its worker with it, since it was listed. A pod
// of others, which is not adopted anyway, is not looked at.
func (a *Agent) remains(ctx context.Context, uid podUID, l *observe.Listed) bool {
	if !a.ours(uid, l.Annotations) {
		return true
	}
	has, err := a.observer.Pod(ctx, uid)
	return err == nil && (len(has.Sandboxes) > 0 || len(has.Containers) > 0)
}
