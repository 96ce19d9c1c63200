// Package tasks runs what takes long for one pod (stopping a container, a lifecycle hook) beside its worker's passes.
//
// Purpose: a pass never blocks on a grace period or a hook: it starts a task under a key, and later passes see that the key is active, or
// collect how it ended. The end of a task wakes the worker.
//
// Truth owned: which long operations of a pod are under way.
//
// Concurrency: a [Group] is safe for concurrent use. Its tasks end with the context given to [New]; [Group.Wait] joins them.
package tasks

import (
	"context"
	"maps"
	"sync"
	"time"
)

// Group has the tasks of one pod.
type Group struct {
	ctx  context.Context //nolint:containedctx // the agent's life: tasks outlive the pass that starts them.
	wake func()
	wg   sync.WaitGroup

	mu     sync.Mutex
	active map[string]*task
	ended  map[string]error
}

type task struct {
	deadline time.Time
	cancel   context.CancelFunc
	done     chan struct{}
}

// New returns a group whose tasks live at most as long as ctx; wake is called after each has ended.
func New(ctx context.Context, wake func()) *Group {
	return &Group{ctx: ctx, wake: wake, active: map[string]*task{}, ended: map[string]error{}}
}

// Start runs fn under key, unless a task of that key is active; it reports whether it did. deadline says by when the task will have ended, for
// [Group.Deadline]; it is not enforced.
func (g *Group) Start(key string, deadline time.Time, fn func(context.Context) error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.active[key]; ok || g.ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithCancel(g.ctx)
	t := &task{deadline: deadline, cancel: cancel, done: make(chan struct{})}
	g.active[key] = t
	delete(g.ended, key)
	g.wg.Go(func() {
		defer cancel()
		err := fn(ctx)
		g.mu.Lock()
		delete(g.active, key)
		g.ended[key] = err
		g.mu.Unlock()
		close(t.done)
		g.wake()
	})
	return true
}

// Active returns the keys of the active tasks and when each will have ended.
func (g *Group) Active() map[string]time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make(map[string]time.Time, len(g.active))
	for key, t := range g.active {
		out[key] = t.deadline
	}
	return out
}

// Deadline returns when the active task of that key will have ended; false where none is active.
func (g *Group) Deadline(key string) (time.Time, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, ok := g.active[key]
	if !ok {
		return time.Time{}, false
	}
	return t.deadline, true
}

// Collect returns how tasks ended since the last call, by key.
func (g *Group) Collect() map[string]error {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := maps.Clone(g.ended)
	clear(g.ended)
	return out
}

// Cancel ends the task of that key and waits until it has returned, or ctx ends.
func (g *Group) Cancel(ctx context.Context, key string) {
	g.mu.Lock()
	t := g.active[key]
	g.mu.Unlock()
	if t == nil {
		return
	}
	t.cancel()
	select {
	case <-t.done:
	case <-ctx.Done():
	}
}

// Wait joins all tasks.
func (g *Group) Wait() { g.wg.Wait() }
