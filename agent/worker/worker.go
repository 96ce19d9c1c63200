package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// worker is one pod's goroutine and mailbox.
type worker struct {
	pool *Pool
	uid  types.UID
	name string
	// bell asks for a pass; urgent asks for one even right after a failed one. Both hold one ring, and whoever rings urgent rings the bell, too.
	bell, urgent chan struct{}

	mu     sync.Mutex
	pod    *v1.Pod
	phase  Phase
	stopBy *Stop
	leaves time.Time // since when nobody wants the pod
	// recorded says that leaves is on record.
	recorded bool
	retry    time.Time
	cancel   context.CancelCauseFunc // the pass under way
}

// errOvertaken ends a pass whose pod has been asked to stop meanwhile.
var errOvertaken = errors.New("overtaken by a stop")

func newWorker(p *Pool, pod *v1.Pod, state State) *worker {
	w := &worker{
		pool: p, uid: pod.UID, name: fullName(pod), bell: make(chan struct{}, 1), urgent: make(chan struct{}, 1), pod: pod,
		phase: state.Phase, stopBy: state.Stop, leaves: state.Leaving, recorded: !state.Leaving.IsZero(),
	}
	if w.phase != Running && w.stopBy == nil {
		w.stopBy = &Stop{Since: time.Now()}
	}
	w.wake()
	return w
}

func (w *worker) wake() { ring(w.bell) }

// hurry wakes the worker even out of the hold after a failed pass.
func (w *worker) hurry() {
	ring(w.bell)
	ring(w.urgent)
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

func (w *worker) setPod(pod *v1.Pod) {
	w.mu.Lock()
	w.pod = pod
	w.mu.Unlock()
	w.hurry()
}

func (w *worker) leaving() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.leaves.IsZero()
}

func (w *worker) entry() Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Entry{Pod: w.pod, Phase: w.phase, Stop: w.stopBy, Forget: !w.leaves.IsZero(), Leaving: w.leaves, Recorded: w.recorded, RetryAt: w.retry}
}

// stop moves the worker on to Terminating and overtakes the pass under way, if that pass was for running the pod or has a longer grace.
func (w *worker) stop(stop Stop, forget bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	news := forget && w.leaves.IsZero()
	if news {
		w.leaves = time.Now()
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
		w.hurry()
	}
}

// end moves the worker to Terminating; w.mu is held.
func (w *worker) end(stop Stop) {
	stop.Since = time.Now()
	w.phase, w.stopBy = Terminating, &stop
}

// shorter reports whether grace a is a wish for less than b; nil is the pod's own.
func shorter(a, b *int64) bool {
	return a != nil && (b == nil || *a < *b)
}

// run makes passes until the pod is gone or the pool closes.
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
		case <-w.bell:
		case <-timer.C:
		}
		timer.Stop()
		work, res := w.pass()
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
		if res.Err != nil && !w.hold(min(d, w.pool.cfg.RetryFirst)) {
			return
		}
	}
}

// hold lets a little time go by after a failed pass whatever rings, unless what is wanted changes; false once the pool has ended.
func (w *worker) hold(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.pool.ctx.Done():
		return false
	case <-w.urgent:
	case <-t.C:
	}
	return true
}

// pass makes one pass over the pod as it is wanted now.
func (w *worker) pass() (Work, Result) {
	ctx, cancel := context.WithCancelCause(w.pool.ctx)
	defer cancel(nil)
	w.mu.Lock()
	select { // what it announced is in this pass
	case <-w.urgent:
	default:
	}
	work := Work{UID: w.uid, Pod: w.pod, Phase: w.phase, Stop: w.stopBy, Forget: !w.leaves.IsZero(), Leaving: w.leaves, Recorded: w.recorded}
	if ctx.Err() != nil || work.Phase == Terminated && !work.Forget {
		w.mu.Unlock()
		return work, Result{}
	}
	w.cancel = cancel
	w.mu.Unlock()

	res := w.pool.deps.Pass(ctx, work)

	w.mu.Lock()
	w.cancel = nil
	w.mu.Unlock()
	if res.Err != nil && errors.Is(context.Cause(ctx), errOvertaken) {
		res.Err = nil // the next pass, for which stop has rung the bell, does what is wanted now
	}
	return work, res
}

// advance moves the phase on after a pass and reports whether the pod is gone.
func (w *worker) advance(work Work, res Result) (gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case work.Phase == Running && res.Finished && w.phase == Running:
		w.end(res.Why)
		w.hurry()
	case work.Phase == Terminating && res.Done:
		w.phase = Terminated
		w.hurry()
	case work.Phase == Terminated && work.Forget && res.Done:
		return true
	}
	return false
}

// soonest is how soon another pass may follow that a pass asked for by RetryAt: one that names the past over and over must not spin.
const soonest = 10 * time.Millisecond

// next returns how long to wait for the next pass if nothing rings, and notes when that will be.
func (w *worker) next(res Result, failures int) (time.Duration, bool) {
	var d time.Duration
	again := false
	if res.Err != nil {
		d = w.pool.cfg.RetryMax
		if shift := failures - 1; shift < 16 {
			d = min(d, w.pool.cfg.RetryFirst<<shift)
		}
		d -= rand.N(d/5 + 1) // a fifth of jitter, so that pods that failed together do not retry together
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
	w.retry = time.Time{}
	if again {
		w.retry = time.Now().Add(d)
	}
	return d, again
}
