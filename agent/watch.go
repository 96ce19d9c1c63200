package agent

import (
	"context"
	"time"

	"github.com/containerd/errdefs"

	"github.com/berthd/berth/cri"
)

// watchRuntime turns the runtime's events into wakes, and lists everything whenever the stream breaks. A runtime without events is listed
// every second.
func (a *Agent) watchRuntime(ctx context.Context) error {
	for wait := 50 * time.Millisecond; ctx.Err() == nil; {
		began := time.Now()
		events, err := a.deps.Runtime.Events(ctx)
		a.relist(ctx) // whether or not there are events: what was missed meanwhile is seen
		if err == nil {
			a.drain(ctx, events)
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
		default:
			wait = min(2*wait, time.Second)
		}
		sleep(ctx, wait)
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
			if e.Type == cri.ContainerStopped && !e.Time.IsZero() {
				a.metrics.ExitSeen(time.Since(e.Time))
			}
			uid := podUID(e.PodUID)
			if uid == "" {
				uid, _ = a.observer.Owner(e.ID)
			}
			if uid != "" {
				a.workers.Wake(uid)
			} else if e.Type != cri.ContainerDeleted {
				a.relist(ctx)
			}
		}
	}
}

// safetyRelist lists everything now and then, should an event have been lost.
func (a *Agent) safetyRelist(ctx context.Context) error {
	for sleep(ctx, a.cfg.Berth.RelistPeriod.Duration) {
		a.relist(ctx)
	}
	return nil
}

// relist lists everything, wakes the workers of pods that differ from what they last observed, and takes notice of pods without one.
func (a *Agent) relist(ctx context.Context) {
	listed, err := a.observer.Relist(ctx)
	if err != nil {
		if ctx.Err() == nil {
			a.log.Debug("listing the runtime's pods failed", "err", err)
		}
		return
	}
	for uid, l := range listed {
		if !l.Changed {
			continue
		}
		if _, ok := a.workers.Get(uid); ok {
			a.workers.Wake(uid)
		} else if l.Name != "" {
			a.adopt(uid, l)
			a.disown(uid)
		} else {
			a.observer.Forget(uid)
		}
	}
}
