// Package tasks runs what takes long for one pod (stopping a container, a lifecycle hook) beside
// the syncs of the pod's worker.
//
// Purpose: a sync never blocks on a grace period or a hook. It starts a task under a key. Later
// syncs see that the key is active, or how the task ended. The end of a task wakes the worker.
// [Turns] lets only one task at a time work on a thing that several pods share.
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
}

// New returns a group whose tasks live at most as long as ctx. wake is called after each task has
// ended. caught is called with what a task panicked with, on the task's stack, and returns the
// error that the task ends with; if caught is nil, a panic ends the program.
func New(ctx context.Context, wake func(), caught func(what any) error) *Group {
	return &Group{ctx: ctx, wake: wake, caught: caught, active: map[string]*task{}, ended: map[string]error{}}
}

// Start runs fn under key, unless a task of that key is active. It reports whether it started fn.
func (g *Group) Start(key string, fn func(context.Context) error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.active[key]; ok || g.ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithCancel(g.ctx)
	t := &task{cancel: cancel, done: make(chan struct{})}
	g.active[key] = t
	delete(g.ended, key)
	g.wg.Go(func() {
		defer cancel()
		err := g.run(ctx, fn)
		g.mu.Lock()
		delete(g.active, key)
		g.ended[key] = err
		g.mu.Unlock()
		close(t.done)
		g.wake()
	})
	return true
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
