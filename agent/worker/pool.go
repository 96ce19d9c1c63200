package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Config has the worker's timings.
type Config struct {
	// RetryFirst and RetryMax bound the back-off after failed passes, with jitter (FEATURES 2.2: 200 ms to 10 s). A wake cuts the back-off short, but not
	// below RetryFirst, so that a failing pass whose own work wakes its worker does not spin. A change of what is wanted cuts it short at once.
	RetryFirst, RetryMax time.Duration
}

// Deps are what the workers need.
type Deps struct {
	// Pass makes one pass over a pod. Its context ends when the pass is overtaken by a stop, or the pool closes.
	Pass func(context.Context, Work) Result
	// Gone is called, on the worker's goroutine, after the last pass over a pod and before its successor may start; with the pod that comes back under its name and UID, or
	// nil. It is called again where such a one is not wanted any more after all.
	Gone   func(uid types.UID, next *v1.Pod)
	Logger *slog.Logger
}

// Pool has a worker for each pod.
type Pool struct {
	cfg    Config
	deps   Deps
	ctx    context.Context //nolint:containedctx // the pool's life: workers start later than New and must end with it.
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// mu guards what follows. It is taken before a worker's own lock, never after.
	mu      sync.Mutex
	workers map[types.UID]*worker
	// named counts the workers of each full name: more than one only where the runtime held two pods of one name.
	named map[string]int
	// queued has, by full name, the pods that wait for a predecessor of their name or their UID to be gone.
	queued map[string]*v1.Pod
}

// New returns an empty pool whose workers live at most as long as ctx.
func New(ctx context.Context, cfg Config, deps Deps) *Pool {
	if cfg.RetryFirst == 0 {
		cfg.RetryFirst = 200 * time.Millisecond
	}
	if cfg.RetryMax == 0 {
		cfg.RetryMax = 10 * time.Second
	}
	p := &Pool{
		cfg: cfg, deps: deps,
		workers: map[types.UID]*worker{},
		named:   map[string]int{},
		queued:  map[string]*v1.Pod{},
	}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// Set makes pod wanted: its worker gets it, is made, or is made as soon as whoever holds the pod's full name or UID is gone. A pod that is already
// on its way out under the same UID is made anew afterwards. A UID that comes under another name is another pod: the one that has it is removed first.
func (p *Pool) Set(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := fullName(pod)
	w := p.workers[pod.UID]
	if w != nil && w.name != name {
		w.stop(Stop{}, true)
	}
	if w != nil && !w.leaving() {
		delete(p.queued, name)
		w.setPod(pod)
		return
	}
	if p.free(pod) {
		p.start(pod, State{})
		return
	}
	if before := p.queued[name]; before == nil || before.UID != pod.UID {
		p.deps.Logger.Info("pod waits for its predecessor to be gone", "pod", name, "uid", pod.UID)
	}
	p.queued[name] = pod
}

// Adopt makes a worker for a pod found in the runtime or the checkpoint, in the state it was left in, unless there is one. Two pods of one name
// found so both get workers.
func (p *Pool) Adopt(pod *v1.Pod, state State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.workers[pod.UID]; !ok {
		p.start(pod, state)
	}
}

// free reports whether neither the pod's name nor its UID is held; p.mu is held.
func (p *Pool) free(pod *v1.Pod) bool {
	return p.named[fullName(pod)] == 0 && p.workers[pod.UID] == nil
}

// start makes the worker, unless the pool has ended; p.mu is held.
func (p *Pool) start(pod *v1.Pod, state State) {
	if p.ctx.Err() != nil {
		return
	}
	w := newWorker(p, pod, state)
	p.workers[pod.UID] = w
	p.named[w.name]++
	p.wg.Go(w.run)
}

// Stop asks for the pod to end and its records to be kept. A second Stop can only shorten the grace.
func (p *Pool) Stop(uid types.UID, stop Stop) {
	if w := p.worker(uid); w != nil {
		w.stop(stop, false)
	}
}

// Remove says that nobody wants the pod any more: it ends, and its records go. A pod that waits for its predecessor is dropped.
func (p *Pool) Remove(uid types.UID) {
	p.mu.Lock()
	p.withdraw(uid)
	w := p.workers[uid]
	p.mu.Unlock()
	if w != nil {
		w.stop(Stop{}, true)
	}
}

// Withdraw drops a pod that waits for its predecessor, and reports whether it did.
func (p *Pool) Withdraw(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.withdraw(uid)
}

// withdraw is Withdraw; p.mu is held.
func (p *Pool) withdraw(uid types.UID) (waited bool) {
	for name, pod := range p.queued {
		if pod.UID == uid {
			delete(p.queued, name)
			waited = true
		}
	}
	return waited
}

// Recorded says that it is on record since when nobody wants the pod.
func (p *Pool) Recorded(uid types.UID) {
	if w := p.worker(uid); w != nil {
		w.mu.Lock()
		w.recorded = true
		w.mu.Unlock()
	}
}

// Wake asks for a pass over the pod soon. Wakes of a pod without a worker are nothing.
func (p *Pool) Wake(uid types.UID) {
	if w := p.worker(uid); w != nil {
		w.wake()
	}
}

func (p *Pool) worker(uid types.UID) *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.workers[uid]
}

// Entry is a pod as its worker has it.
type Entry struct {
	Pod   *v1.Pod
	Phase Phase
	// Stop is why and how the pod ends; nil in Running. It is never changed once handed out.
	Stop *Stop
	// Forget is true for a pod that nobody wants any more, Leaving since when; Recorded says that this is on record, and may be told.
	Forget   bool
	Leaving  time.Time
	Recorded bool
	// Waiting is true for a successor that waits for its predecessor to be gone.
	Waiting bool
	// Again is true for a pod that is leaving and is wanted again, under the same UID, once it is gone; Remove takes that back.
	Again bool
	// RetryAt is when the next pass is due if nothing happens before; zero when it waits for something to happen.
	RetryAt time.Time
}

// List returns all pods that have a worker or wait for one, by UID; a pod that is leaving and comes again is listed as leaving, with Again.
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

// Get returns the pod with that UID as its worker has it; false for one that has no worker, waiting successors among them.
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

// Close ends all workers, cancelling the passes under way, and joins them. The pods are left as they are; afterwards no worker starts any more.
func (p *Pool) Close() {
	p.cancel()
	p.Wait()
}

// Wait joins the workers. The pool's context must have ended, else use Close.
func (p *Pool) Wait() {
	p.mu.Lock()
	p.mu.Unlock() //nolint:staticcheck // a barrier: a start that saw the pool open has counted its worker by now
	p.wg.Wait()
}

// gone takes a worker off the books and lets in whoever waited for its name or its UID.
func (p *Pool) gone(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		next := p.next(w)
		p.mu.Unlock()
		p.deps.Gone(w.uid, next)
		p.mu.Lock()
		if next == nil || p.next(w) != nil {
			break
		}
	}
	delete(p.workers, w.uid)
	if p.named[w.name]--; p.named[w.name] == 0 {
		delete(p.named, w.name)
	}
	for name, next := range p.queued {
		if p.free(next) {
			delete(p.queued, name)
			p.start(next, State{})
		}
	}
}

// next returns the pod that is to come back under a worker's name and UID; nil for none. p.mu is held.
func (p *Pool) next(w *worker) *v1.Pod {
	if next := p.queued[w.name]; next != nil && next.UID == w.uid {
		return next
	}
	return nil
}

func fullName(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }
