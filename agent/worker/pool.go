// Package worker runs one goroutine per pod UID, which makes passes over its pod until the pod is gone.
//
// Purpose: order and liveness. A pod's passes never overlap; wishes that come faster than passes coalesce, newest wins; a failed pass is tried
// again with back-off; a pod's successor of the same full name starts only after its predecessor is gone.
//
// Truth owned: each pod's [Phase], which only moves forward:
//
//	Running ──Stop, Remove, or a pass that says Finished──▶ Terminating ──pass Done──▶ Terminated ──Remove, pass Done──▶ gone
//
// Eviction, deletion, shutdown and deadlines only ask, through Stop and Remove.
//
// Concurrency: a [Pool] is safe for concurrent use. Its goroutines end when the context given to [New] does; [Pool.Wait] joins them.
package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Phase is where a pod's worker stands. It never goes back.
type Phase int

// The phases.
const (
	// Running: the pod should run; passes bring it up and keep it up.
	Running Phase = iota
	// Terminating: containers are stopped and everything that the pod holds is given back.
	Terminating
	// Terminated: nothing runs; records (logs, exit codes, status) are kept until the pod is no longer wanted.
	Terminated
)

// String returns the phase's name for logs and the timeline.
func (p Phase) String() string {
	return [...]string{"Running", "Terminating", "Terminated"}[p]
}

// Stop is why and how a pod has to end.
type Stop struct {
	// Reason and Message become the pod status's where they are set (Evicted, DeadlineExceeded…); empty for a plain deletion.
	Reason, Message string
	// Grace replaces the pod's own grace period, in seconds.
	Grace *int64
}

// Work is what a pass is about.
type Work struct {
	UID   types.UID
	Pod   *v1.Pod
	Phase Phase
	// Stop is set from Terminating on.
	Stop *Stop
	// Forget says that nobody wants the pod any more: in Terminated its records have to go, too.
	Forget bool
}

// Result is how a pass ended.
type Result struct {
	// Done says that the phase's work is complete: in Terminating, that everything is given back; in Terminated, that the records are gone.
	Done bool
	// Finished says, in Running, that nothing of the pod will ever run again: the worker goes on to Terminating.
	Finished bool
	// RetryAt asks for another pass at that time, whatever happens; zero for none.
	RetryAt time.Time
	// Err asks for another pass after the worker's back-off.
	Err error
}

// Config has the worker's timings.
type Config struct {
	// RetryFirst and RetryMax bound the back-off after failed passes, with jitter (FEATURES 2.2: 200 ms to 10 s).
	RetryFirst, RetryMax time.Duration
}

// Deps are what the workers need.
type Deps struct {
	// Pass makes one pass over a pod. Its context ends when the pass is overtaken by a stop, or the pool closes.
	Pass func(context.Context, Work) Result
	// Gone is called, on the worker's goroutine, after the last pass over a pod and before its successor may start.
	Gone   func(types.UID)
	Logger *slog.Logger
}

// Pool has a worker for each pod.
type Pool struct {
	cfg  Config
	deps Deps
	ctx  context.Context //nolint:containedctx // the pool's life: workers start later than New and must end with it.
	wg   sync.WaitGroup

	mu      sync.Mutex
	workers map[types.UID]*worker
	holder  map[string]types.UID
	queued  map[string]*v1.Pod
}

// New returns an empty pool whose workers live at most as long as ctx.
func New(ctx context.Context, cfg Config, deps Deps) *Pool {
	if cfg.RetryFirst == 0 {
		cfg.RetryFirst = 200 * time.Millisecond
	}
	if cfg.RetryMax == 0 {
		cfg.RetryMax = 10 * time.Second
	}
	return &Pool{
		cfg: cfg, deps: deps, ctx: ctx,
		workers: map[types.UID]*worker{},
		holder:  map[string]types.UID{},
		queued:  map[string]*v1.Pod{},
	}
}

// Set makes pod wanted: its worker gets it, is made, or is made as soon as whoever holds the pod's full name is gone. A pod that is already
// on its way out under the same UID is made anew afterwards.
func (p *Pool) Set(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := fullName(pod)
	uid, held := p.holder[name]
	if !held {
		p.start(pod, Running)
		return
	}
	w := p.workers[uid]
	if uid == pod.UID && !w.leaving() {
		delete(p.queued, name)
		w.setPod(pod)
		return
	}
	p.queued[name] = pod
	p.deps.Logger.Info("pod waits for its predecessor to be gone", "pod", name, "uid", pod.UID, "predecessor", uid)
}

// Adopt makes a worker for a pod found in the runtime or the checkpoint, in the phase it was left in, unless there is one.
func (p *Pool) Adopt(pod *v1.Pod, phase Phase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.workers[pod.UID]; ok {
		return
	}
	p.start(pod, phase)
}

// start makes the worker; p.mu is held. Two pods of one name found in the runtime both get workers: the name belongs to the last.
func (p *Pool) start(pod *v1.Pod, phase Phase) {
	w := newWorker(p, pod, phase)
	p.workers[pod.UID] = w
	p.holder[fullName(pod)] = pod.UID
	p.wg.Go(w.run)
}

// Stop asks for the pod to end and its records to be kept. A second Stop can only shorten the grace.
func (p *Pool) Stop(uid types.UID, stop Stop) {
	p.mu.Lock()
	w := p.workers[uid]
	p.mu.Unlock()
	if w != nil {
		w.stop(stop, false)
	}
}

// Remove says that nobody wants the pod any more: it ends, and its records go.
func (p *Pool) Remove(uid types.UID) {
	p.mu.Lock()
	for name, pod := range p.queued {
		if pod.UID == uid {
			delete(p.queued, name)
		}
	}
	w := p.workers[uid]
	p.mu.Unlock()
	if w != nil {
		w.stop(Stop{}, true)
	}
}

// Wake asks for a pass over the pod soon. Wakes of a pod without a worker are nothing.
func (p *Pool) Wake(uid types.UID) {
	p.mu.Lock()
	w := p.workers[uid]
	p.mu.Unlock()
	if w != nil {
		w.wake()
	}
}

// Entry is a pod as its worker has it.
type Entry struct {
	Pod    *v1.Pod
	Phase  Phase
	Forget bool
	// Waiting is true for a successor that waits for its predecessor to be gone.
	Waiting bool
	// RetryAt is when the next pass is due if nothing happens before; zero when it waits for something to happen.
	RetryAt time.Time
}

// List returns all pods that have a worker or wait for one, by UID; a pod that is leaving and comes again is listed as leaving.
func (p *Pool) List() map[types.UID]Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[types.UID]Entry, len(p.workers))
	for _, pod := range p.queued {
		out[pod.UID] = Entry{Pod: pod, Waiting: true}
	}
	for uid, w := range p.workers {
		out[uid] = w.entry()
	}
	return out
}

// Get returns the pod with that UID as its worker has it.
func (p *Pool) Get(uid types.UID) (Entry, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, ok := p.workers[uid]; ok {
		return w.entry(), true
	}
	return Entry{}, false
}

// Wait joins the workers. The pool's context must have ended.
func (p *Pool) Wait() { p.wg.Wait() }

// gone takes a worker off the books and lets the successor in.
func (p *Pool) gone(w *worker) {
	p.deps.Gone(w.uid)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.workers, w.uid)
	if p.holder[w.name] == w.uid {
		delete(p.holder, w.name)
		for uid, other := range p.workers {
			if other.name == w.name {
				p.holder[w.name] = uid // two of one name were found in the runtime
			}
		}
	}
	if next, ok := p.queued[w.name]; ok {
		if _, held := p.holder[w.name]; !held {
			delete(p.queued, w.name)
			p.start(next, Running)
		}
	}
}

func fullName(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }
