package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/internal/retry"
)

// worker is one pod's goroutine, and what the goroutine is asked to do.
type worker struct {
	pool *Pool
	uid  types.UID
	name string
	// places are the places that the worker holds until it is gone.
	places []place
	// syncSoon asks for a sync. syncNow asks for a sync even right after a failed one. Whoever
	// notifies syncNow notifies syncSoon, too.
	syncSoon, syncNow notify.Signal

	mu       sync.Mutex
	pod      *v1.Pod
	phase    Phase
	stopBy   *Stop
	unwanted time.Time // since when nobody wants the pod
	// recorded says that unwanted is on record.
	recorded bool
	retryAt  time.Time
	cancel   context.CancelCauseFunc // ends the sync under way
}

// errOvertaken ends a sync of a pod that was asked to stop during the sync.
var errOvertaken = errors.New("overtaken by a stop")

func newWorker(p *Pool, pod *v1.Pod, state State) *worker {
	w := &worker{
		pool: p, uid: pod.UID, name: pods.FullName(pod), places: placesOf(pod), syncSoon: notify.New(),
		syncNow: notify.New(), pod: pod, phase: state.Phase, stopBy: state.Stop, unwanted: state.UnwantedSince,
		recorded: !state.UnwantedSince.IsZero(),
	}
	if w.phase != Running && w.stopBy == nil {
		w.stopBy = &Stop{Since: time.Now()}
	}
	w.wake()
	return w
}

func (w *worker) wake() { w.syncSoon.Notify() }

// wakeNow wakes the worker even out of the pause after a failed sync.
func (w *worker) wakeNow() {
	w.syncSoon.Notify()
	w.syncNow.Notify()
}

func (w *worker) setPod(pod *v1.Pod) {
	w.mu.Lock()
	w.pod = pod
	w.mu.Unlock()
	w.wakeNow()
}

func (w *worker) isUnwanted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.unwanted.IsZero()
}

func (w *worker) entry() Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Entry{
		Pod:           w.pod,
		Phase:         w.phase,
		Stop:          w.stopBy,
		Unwanted:      !w.unwanted.IsZero(),
		UnwantedSince: w.unwanted,
		Recorded:      w.recorded,
		RetryAt:       w.retryAt,
	}
}

// stop moves the worker on to Terminating. It ends the sync under way if that sync was for running
// the pod, or has a longer grace.
func (w *worker) stop(stop Stop, forget bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	news := forget && w.unwanted.IsZero()
	if news {
		w.unwanted = time.Now()
	}
	overtake := false
	switch {
	case w.phase == Running:
		w.end(stop)
		overtake = true
	case w.phase == Terminating && shorter(stop.Grace, w.stopBy.Grace):
		by := *w.stopBy
		by.Grace = stop.Grace
		w.stopBy = &by
		overtake = true
	}
	if overtake && w.cancel != nil {
		w.cancel(errOvertaken)
	}
	if overtake || news {
		w.wakeNow()
	}
}

// end moves the worker to Terminating. w.mu is held.
func (w *worker) end(stop Stop) {
	stop.Since = time.Now()
	w.phase, w.stopBy = Terminating, &stop
}

// shorter reports whether grace a asks for less than grace b. Nil stands for the pod's own grace.
func shorter(a, b *int64) bool {
	return a != nil && (b == nil || *a < *b)
}

// run syncs the pod until the pod is gone or the pool closes.
func (w *worker) run() {
	closed := w.pool.ctx.Done()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-closed:
			return
		case <-w.syncSoon:
		case <-timer.C:
		}
		timer.Stop()
		work, res := w.sync()
		if w.pool.ctx.Err() != nil {
			return
		}
		if w.advance(work, res) {
			w.pool.gone(w)
			return
		}
		if res.Err == nil {
			failures = 0
		} else {
			failures++
		}
		d, again := w.next(res, failures)
		if again {
			timer.Reset(d)
		}
		if res.Err != nil && !w.pause(min(d, w.pool.cfg.RetryFirst)) {
			return
		}
	}
}

// pause lets a little time pass after a failed sync, whatever notifications come. It ends early if
// what is wanted of the pod changes. It returns false once the pool has ended.
func (w *worker) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.pool.ctx.Done():
		return false
	case <-w.syncNow:
	case <-t.C:
	}
	return true
}

// sync makes one sync of the pod as it is wanted now.
func (w *worker) sync() (Work, Result) {
	ctx, cancel := context.WithCancelCause(w.pool.ctx)
	defer cancel(nil)
	w.mu.Lock()
	select { // this sync knows what was announced
	case <-w.syncNow:
	default:
	}
	work := Work{
		UID:           w.uid,
		Pod:           w.pod,
		Phase:         w.phase,
		Stop:          w.stopBy,
		Unwanted:      !w.unwanted.IsZero(),
		UnwantedSince: w.unwanted,
		Recorded:      w.recorded,
	}
	if ctx.Err() != nil || work.Phase == Terminated && !work.Unwanted {
		w.mu.Unlock()
		return work, Result{}
	}
	w.cancel = cancel
	w.mu.Unlock()

	res := w.pool.handler.Sync(ctx, work)

	w.mu.Lock()
	w.cancel = nil
	w.mu.Unlock()
	if res.Err != nil && errors.Is(context.Cause(ctx), errOvertaken) {
		res.Err = nil // stop has notified syncSoon: the next sync does what is wanted now
	}
	return work, res
}

// advance moves the phase on after a sync and reports whether the pod is gone.
func (w *worker) advance(work Work, res Result) (gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case work.Phase == Running && res.Finished && w.phase == Running:
		w.end(res.Why)
		w.wakeNow()
	case work.Phase == Terminating && res.Done:
		w.phase = Terminated
		w.wakeNow()
	case work.Phase == Terminated && work.Unwanted && res.Done:
		return true
	}
	return false
}

// soonest is the shortest time before another sync that a sync asked for by RetryAt. A sync that
// names the past over and over must not spin.
const soonest = 10 * time.Millisecond

// next returns how long to wait for the next sync if no notification comes, and keeps when that
// will be.
func (w *worker) next(res Result, failures int) (time.Duration, bool) {
	var d time.Duration
	again := false
	if res.Err != nil {
		d = retry.Backoff{First: w.pool.cfg.RetryFirst, Most: w.pool.cfg.RetryMax}.Delay(failures)
		// up to a fifth less, so that pods that failed together do not retry together
		d -= rand.N(d/5 + 1)
		again = true
	}
	if !res.RetryAt.IsZero() {
		at := max(time.Until(res.RetryAt), soonest)
		if !again || at < d {
			d, again = at, true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retryAt = time.Time{}
	if again {
		w.retryAt = time.Now().Add(d)
	}
	return d, again
}
