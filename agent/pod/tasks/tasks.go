// Package tasks runs what takes long for one pod (stopping a container, a lifecycle hook) beside
// the syncs of the pod's worker.
//
// Purpose: a sync never blocks on a grace period or a hook. It starts a task under a key. Later
// syncs see that the key is active, or how the task ended. The end of a task wakes the worker.
// What takes a moment unless a file system hangs, the sync waits for, but not longer:
// [Group.Brief]. [Turns] lets only one task at a time work on a thing that several pods share.
//
// Truth owned: which long operations of a pod are under way.
//
// Concurrency: a [Group] and [Turns] are safe for concurrent use. A group's tasks end with the
// context given to [New]; [Group.Wait] joins them.
package tasks

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Group has the tasks of one pod.
type Group struct {
	ctx    context.Context //nolint:containedctx // the agent's life: tasks outlive the sync that starts them.
	wake   func()
	caught func(what any) error
	wg     sync.WaitGroup

	mu     sync.Mutex
	active map[string]*task
	ended  map[string]error
}

type task struct {
	cancel context.CancelFunc
	done   chan struct{}
	// brief says that [Group.Brief] made the task, and awaited that it still waits for it. Both and
	// err, how the task ended, are guarded by the group's lock.
	brief, awaited bool
	err            error
}

// New returns a group whose tasks live at most as long as ctx. wake is called after each task has
// ended. caught is called with what a task panicked with, on the task's stack, and returns the
// error that the task ends with; if caught is nil, a panic ends the program.
func New(ctx context.Context, wake func(), caught func(what any) error) *Group {
	return &Group{ctx: ctx, wake: wake, caught: caught, active: map[string]*task{}, ended: map[string]error{}}
}

// Start runs fn under key, unless a task of that key is active. It reports whether it started fn.
func (g *Group) Start(key string, fn func(context.Context) error) bool {
	return g.begin(key, &task{}, fn)
}

// Brief runs fn under key, and waits for its end, but at most for limit, and not after ctx has
// ended. ended says that fn has ended, with err. If fn goes on, its end wakes the worker, and what
// it returns is lost: who wants it calls Brief again. While fn runs, another Brief of that key does
// not wait.
func (g *Group) Brief(
	ctx context.Context, key string, limit time.Duration, fn func(context.Context) error,
) (ended bool, err error) {
	t := &task{brief: true, awaited: true}
	if !g.begin(key, t, fn) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-t.done:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	t.awaited = false
	return g.active[key] != t, t.err
}

// begin starts a task, unless a task of that key is active or the group has ended.
func (g *Group) begin(key string, t *task, fn func(context.Context) error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.active[key]; ok || g.ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithCancel(g.ctx)
	t.cancel, t.done = cancel, make(chan struct{})
	g.active[key] = t
	delete(g.ended, key)
	g.wg.Go(func() {
		defer cancel()
		err := g.run(ctx, fn)
		if g.end(key, t, err) {
			g.wake()
		}
	})
	return true
}

// end notes how a task ended, and reports whether the worker has to know.
func (g *Group) end(key string, t *task, err error) (wake bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.active, key)
	if t.err = err; !t.brief {
		g.ended[key] = err
	}
	close(t.done)
	return !t.awaited
}

// run calls fn, and turns a panic into an error.
func (g *Group) run(ctx context.Context, fn func(context.Context) error) (err error) {
	if g.caught != nil {
		defer func() {
			if what := recover(); what != nil {
				err = g.caught(what)
			}
		}()
	}
	return fn(ctx)
}

// Active returns the keys of the active tasks, sorted.
func (g *Group) Active() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.active))
}

// Has reports whether a task of that key is active.
func (g *Group) Has(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.active[key] != nil
}

// Look returns the keys of the active tasks and, by key, how tasks ended since the last look. It
// takes both at one moment, so that no task is missed that ends during the look.
func (g *Group) Look() (active map[string]bool, ended map[string]error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	active = make(map[string]bool, len(g.active))
	for key := range g.active {
		active[key] = true
	}
	ended = maps.Clone(g.ended)
	clear(g.ended)
	return active, ended
}

// Cancel ends the task of that key. It waits until the task has returned, or until ctx ends.
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
