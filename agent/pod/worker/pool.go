package worker

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/pods"
)

// Config has the worker's timings.
type Config struct {
	// RetryFirst and RetryMax bound the back-off after failed syncs, with jitter. Zero means 200 ms
	// and 10 s. A notification cuts the back-off short, but not below RetryFirst: a failing sync
	// may notify its own worker and must not spin. A change of what is wanted cuts the back-off
	// short at once.
	RetryFirst, RetryMax time.Duration
}

// Handler does the work of the workers.
type Handler interface {
	// Sync makes one sync of a pod. Its context ends when a stop overtakes the sync, or when the
	// pool closes.
	Sync(ctx context.Context, work Work) Result
	// Gone is called on the worker's goroutine, after the last sync of a pod and before its
	// successor may start. next is the pod that comes back under the same name and UID, or nil.
	// Gone is called again if it turns out that nobody wants next any more.
	Gone(uid types.UID, next *v1.Pod)
}

// Pool has a worker for each pod.
type Pool struct {
	cfg    Config
	log    *slog.Logger
	ctx    context.Context //nolint:containedctx // the pool's life: workers start later than New and must end with it.
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// mu guards what follows. It is taken before a worker's own lock, never after.
	mu      sync.Mutex
	handler Handler
	workers map[types.UID]*worker
	// held counts the workers of each place. It is more than one only if the runtime held two pods
	// of one name.
	held map[place]int
	// queued has, by place, the pods that wait until a predecessor of their place or their UID is
	// gone.
	queued map[place]*v1.Pod
}

// place is what one pod at a time may have: a full name among the static pods, or among those of
// the API server. Whoever may make pods at the API server can give them a static pod's name. Such a
// pod must not keep the static pod from starting.
type place struct {
	name string
	api  bool
}

func placeOf(pod *v1.Pod) place { return place{pods.FullName(pod), pods.FromAPI(pod)} }

// placesOf returns the places that a pod's worker holds. A pod that only the runtime knows, and not
// where it came from, holds the places of both kinds of pods.
func placesOf(pod *v1.Pod) []place {
	if pods.RuntimeOnly(pod) && pods.Source(pod) == "" {
		return []place{{pods.FullName(pod), false}, {pods.FullName(pod), true}}
	}
	return []place{placeOf(pod)}
}

// New returns an empty pool whose workers live at most as long as ctx. It has no pods before
// [Pool.Start]; whoever must wake or list pods can have the pool earlier.
func New(ctx context.Context, cfg Config, log *slog.Logger) *Pool {
	if cfg.RetryFirst == 0 {
		cfg.RetryFirst = 200 * time.Millisecond
	}
	if cfg.RetryMax == 0 {
		cfg.RetryMax = 10 * time.Second
	}
	p := &Pool{
		cfg: cfg, log: log,
		workers: map[types.UID]*worker{},
		held:    map[place]int{},
		queued:  map[place]*v1.Pod{},
	}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// Start sets who does the work. It is called once, before the first pod is set or adopted.
func (p *Pool) Start(h Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handler = h
}

// Set makes pod wanted. If the pod has a worker, the worker gets it. Otherwise a worker is made for
// it, at once or as soon as no other pod has its full name or UID. Full names of static pods and of
// pods of the API server are apart. A pod that is already being removed under the same UID is made
// anew afterwards. A UID that comes under another name is another pod: the pod that has the UID is
// removed first.
func (p *Pool) Set(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name, at := pods.FullName(pod), placeOf(pod)
	maps.DeleteFunc(p.queued, func(other place, waits *v1.Pod) bool { // it has another name now
		return waits.UID == pod.UID && other != at
	})
	w := p.workers[pod.UID]
	if w != nil && w.name != name {
		w.stop(Stop{}, true)
	}
	if w != nil && !w.isUnwanted() {
		delete(p.queued, at)
		w.setPod(pod)
		return
	}
	if p.free(pod) {
		p.start(pod, State{})
		return
	}
	if before := p.queued[at]; before == nil || before.UID != pod.UID {
		p.log.Info("pod waits for its predecessor to be gone", "pod", name, "uid", pod.UID)
	}
	p.queued[at] = pod
}

// Adopt makes a worker for a pod that was found in the runtime or in the checkpoint, in the state
// that the pod was left in. It does nothing if the pod has a worker. If two pods of one name were
// found, both get workers.
func (p *Pool) Adopt(pod *v1.Pod, state State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.workers[pod.UID]; !ok {
		p.start(pod, state)
	}
}

// free reports whether no worker has the pod's place or its UID. p.mu is held.
func (p *Pool) free(pod *v1.Pod) bool {
	return p.held[placeOf(pod)] == 0 && p.workers[pod.UID] == nil
}

// start makes the worker, unless the pool has ended. p.mu is held.
func (p *Pool) start(pod *v1.Pod, state State) {
	if p.ctx.Err() != nil {
		return
	}
	w := newWorker(p, pod, state)
	p.workers[pod.UID] = w
	for _, at := range w.places {
		p.held[at]++
	}
	p.wg.Go(w.run)
}

// Stop asks for the pod to end. Its records are kept. A second Stop can only shorten the grace.
func (p *Pool) Stop(uid types.UID, stop Stop) {
	if w := p.worker(uid); w != nil {
		w.stop(stop, false)
	}
}

// Remove says that nobody wants the pod any more: the pod ends, and its records are removed. A pod
// that waits for its predecessor is dropped.
func (p *Pool) Remove(uid types.UID) {
	p.mu.Lock()
	p.withdraw(uid)
	w := p.workers[uid]
	p.mu.Unlock()
	if w != nil {
		w.stop(Stop{}, true)
	}
}

// Withdraw drops a pod that waits for its predecessor. It reports whether there was one.
func (p *Pool) Withdraw(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.withdraw(uid)
}

// withdraw is Withdraw. p.mu is held.
func (p *Pool) withdraw(uid types.UID) (waited bool) {
	for at, pod := range p.queued {
		if pod.UID == uid {
			delete(p.queued, at)
			waited = true
		}
	}
	return waited
}

// Recorded says that the record of the pod now has the time since when nobody wants the pod.
func (p *Pool) Recorded(uid types.UID) {
	if w := p.worker(uid); w != nil {
		w.mu.Lock()
		w.recorded = true
		w.mu.Unlock()
	}
}

// Wake asks for a sync of the pod soon. It does nothing for a pod without a worker.
func (p *Pool) Wake(uid types.UID) {
	if w := p.worker(uid); w != nil {
		w.wake()
	}
}

// Has reports whether the pod has a worker. A successor that waits has none.
func (p *Pool) Has(uid types.UID) bool { return p.worker(uid) != nil }

func (p *Pool) worker(uid types.UID) *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.workers[uid]
}

// Entry is a pod as its worker has it.
type Entry struct {
	Pod   *v1.Pod
	Phase Phase
	// Stop is why and how the pod ends. It is nil in Running, and is never changed once handed out.
	Stop *Stop
	// Unwanted is true for a pod that nobody wants any more, UnwantedSince is since when. Recorded
	// says that this is on record, and may be reported.
	Unwanted      bool
	UnwantedSince time.Time
	Recorded      bool
	// Waiting is true for a successor that waits until its predecessor is gone.
	Waiting bool
	// Again is true for a pod that is being removed and is wanted again, under the same UID, once
	// it is gone. Remove takes that back.
	Again bool
	// RetryAt is when the next sync is due if nothing happens before. It is zero for a pod that
	// waits for something to happen.
	RetryAt time.Time
}

// List returns all pods that have a worker or wait for one, by UID. A pod that is being removed and
// comes again is listed as the pod that is being removed, with Again.
func (p *Pool) List() map[types.UID]Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[types.UID]Entry, len(p.workers)+len(p.queued))
	for uid, w := range p.workers {
		out[uid] = w.entry()
	}
	for _, pod := range p.queued {
		if e, ok := out[pod.UID]; ok {
			e.Again = true
			out[pod.UID] = e
		} else {
			out[pod.UID] = Entry{Pod: pod, Waiting: true}
		}
	}
	return out
}

// Known returns the UIDs of all pods that have a worker or wait for one.
func (p *Pool) Known() map[types.UID]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[types.UID]bool, len(p.workers)+len(p.queued))
	for uid := range p.workers {
		out[uid] = true
	}
	for _, pod := range p.queued {
		out[pod.UID] = true
	}
	return out
}

// Get returns the pod with that UID as its worker has it. It returns false for a pod without a
// worker, for instance a successor that waits.
func (p *Pool) Get(uid types.UID) (Entry, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, ok := p.workers[uid]
	if !ok {
		return Entry{}, false
	}
	e := w.entry()
	for _, pod := range p.queued {
		e.Again = e.Again || pod.UID == uid
	}
	return e, true
}

// Close ends all workers, cancels the syncs under way, and joins them. The pods are left as they
// are. Afterwards no worker starts any more.
func (p *Pool) Close() {
	p.cancel()
	p.Wait()
}

// Wait joins the workers. The pool's context must have ended; otherwise use Close.
func (p *Pool) Wait() {
	p.mu.Lock()
	p.mu.Unlock() //nolint:staticcheck // a barrier: a start that saw the pool open has counted its worker by now
	p.wg.Wait()
}

// gone removes a worker from the pool and starts the workers of pods that waited for its place or
// its UID.
func (p *Pool) gone(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		next := p.next(w)
		p.mu.Unlock()
		p.handler.Gone(w.uid, next)
		p.mu.Lock()
		if next == nil || p.next(w) != nil {
			break
		}
	}
	delete(p.workers, w.uid)
	for _, at := range w.places {
		if p.held[at]--; p.held[at] == 0 {
			delete(p.held, at)
		}
	}
	for at, next := range p.queued {
		if p.free(next) {
			delete(p.queued, at)
			p.start(next, State{})
		}
	}
}

// next returns the pod that is to come back under a worker's name and UID, nil for none. p.mu is
// held.
func (p *Pool) next(w *worker) *v1.Pod {
	for _, at := range []place{{w.name, false}, {w.name, true}} {
		if next := p.queued[at]; next != nil && next.UID == w.uid {
			return next
		}
	}
	return nil
}
