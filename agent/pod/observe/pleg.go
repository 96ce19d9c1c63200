package observe

import (
	"context"
	"log/slog"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/retry"
)

// Workers are the pods' workers.
type Workers interface {
	// Wake asks for a sync of the pod soon. Has reports whether the pod has a worker.
	Wake(uid types.UID)
	Has(uid types.UID) bool
}

// Unclaimed takes care of pods in the runtime that have no worker.
type Unclaimed interface {
	// Listed gets what the runtime has, whether or not the pods have workers.
	Listed(all map[types.UID]*Listed)
	// TakeIn makes a worker for a listed pod if the runtime or the records still have something of
	// it. Otherwise it drops what is remembered of the pod.
	TakeIn(ctx context.Context, uid types.UID, l *Listed)
}

// PLEGConfig has a PLEG's timings.
type PLEGConfig struct {
	// Relist is how often everything is listed if no event asks for it.
	Relist time.Duration
}

// PLEGDeps are what a PLEG works with.
type PLEGDeps struct {
	Runtime interface {
		Events(ctx context.Context) (<-chan cri.Event, error)
	}
	Observer  *Observer
	Workers   Workers
	Unclaimed Unclaimed
	// Meet asks the runtime for its version and features, because it may have come back as another
	// release. It reports whether the runtime answered.
	Meet func(ctx context.Context) bool
	// Interrupted is called when the runtime was away. That may have left something half made.
	Interrupted func()
	// ExitSeen is called with the time between a container's end and the moment when its exit was
	// seen.
	ExitSeen func(after time.Duration)
	// Relisted, if set, is called after each listing of all pods, with how long it took.
	Relisted func(took time.Duration)
	Logger   *slog.Logger
}

// PLEG is the pod lifecycle event generator, as the kubelet calls it. It notices what happens in
// the runtime, and wakes the worker of the pod. Unlike the kubelet's, it listens to the runtime's
// events, and lists everything only if an event may have been lost. Make it with [NewPLEG].
type PLEG struct {
	cfg  PLEGConfig
	deps PLEGDeps
	log  *slog.Logger
	// asked asks for a listing of everything.
	asked notify.Signal
}

// NewPLEG returns a PLEG, which does nothing before [PLEG.Run] and [PLEG.Relists].
func NewPLEG(cfg PLEGConfig, deps PLEGDeps) *PLEG {
	return &PLEG{cfg: cfg, deps: deps, log: deps.Logger, asked: notify.New()}
}

// Observer reads what the runtime has of each pod.
func (p *PLEG) Observer() *Observer { return p.deps.Observer }

// eventsRetry is the back-off of the subscription to events.
var eventsRetry = retry.Backoff{First: 100 * time.Millisecond, Most: time.Second}

// listPeriod is how often a runtime without events is listed.
const listPeriod = time.Second

// Run turns the runtime's events into wakes until ctx ends. It lists everything whenever the stream
// breaks. A runtime without events is listed every second.
func (p *PLEG) Run(ctx context.Context) error {
	met := true // at the start, before the first pod
	failures := 0
	for ctx.Err() == nil {
		began := time.Now()
		events, err := p.deps.Runtime.Events(ctx)
		answers := p.list(ctx) // with or without events: this shows what was missed before
		met = answers && (met || p.deps.Meet(ctx))
		if err == nil {
			p.follow(ctx, events)
			met = false
		}
		if ctx.Err() != nil {
			break
		}
		wait := listPeriod
		switch {
		case errdefs.IsNotImplemented(err):
		case time.Since(began) > time.Second:
			failures, wait = 0, 50*time.Millisecond
			p.log.Warn("the runtime's event stream ended; subscribing again", "err", err)
			p.deps.Interrupted()
		default:
			failures++
			wait = eventsRetry.Delay(failures)
		}
		retry.Sleep(ctx, wait)
	}
	return nil //nolint:nilerr // an error of the stream is the reason for another round, not for an end
}

// follow wakes the workers of the pods that events are about, until the stream ends.
func (p *PLEG) follow(ctx context.Context, events <-chan cri.Event) {
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-events:
			if !ok {
				return
			}
			p.take(e)
		}
	}
}

// take wakes the worker of the pod that an event is about. If the pod is not known, everything is
// listed.
func (p *PLEG) take(e cri.Event) {
	if e.Type == cri.ContainerStopped && p.deps.Observer.Exited(e.ID, e.Exit) && !e.Time.IsZero() {
		p.deps.ExitSeen(time.Since(e.Time))
	}
	uid := types.UID(e.PodUID)
	if uid == "" {
		uid, _ = p.deps.Observer.Owner(e.ID)
	}
	if uid != "" {
		p.deps.Workers.Wake(uid)
	} else if e.Type != cri.ContainerDeleted {
		p.asked.Notify() // notifications during one listing lead to one more listing
	}
}

// Relists lists everything when an event asks for it, and at regular times because an event may
// have been lost. It returns when ctx ends.
func (p *PLEG) Relists(ctx context.Context) error {
	tick := time.NewTicker(p.cfg.Relist)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.asked:
		case <-tick.C:
		}
		p.list(ctx)
	}
}

// list lists everything. It wakes the workers of pods that differ from what was last observed, and
// has the pods without a worker taken in. It reports whether the runtime answered.
func (p *PLEG) list(ctx context.Context) bool {
	began := time.Now()
	listed, err := p.deps.Observer.Relist(ctx)
	if err != nil {
		if ctx.Err() == nil {
			p.log.Debug("listing the runtime's pods failed", "err", err)
		}
		return false
	}
	if p.deps.Relisted != nil {
		p.deps.Relisted(time.Since(began))
	}
	p.deps.Unclaimed.Listed(listed)
	for uid, l := range listed {
		switch {
		case !l.Changed:
		case p.deps.Workers.Has(uid):
			p.deps.Workers.Wake(uid)
		default:
			p.deps.Unclaimed.TakeIn(ctx, uid, l)
		}
	}
	return true
}
