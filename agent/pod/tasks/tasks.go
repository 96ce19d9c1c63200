// Package tasks runs what takes long for one pod (stopping a container, a lifecycle hook) beside
// the syncs of the pod's worker.
//
// Purpose: a sync never blocks on a grace period or a hook. It starts a task under a key. Later
// syncs see that the key is active, or how the task ended. The end of a task wakes the worker.
// What takes a moment unless a file system hangs, the sync waits for, but not longer:
// [Group.Brief]. A pod that goes leaves such a task behind, as long as it changes nothing: [Hold],
// [Group.LeaveBehind]. [Turns] lets only one task at a time work on a thing that several pods
// share.
//
// Truth owned: which long operations of a pod are under way.
//
// Concurrency: a [Group] and [Turns] are safe for concurrent use. A group's tasks end with the
// context given to [New]; [Group.Wait] joins them, but for those that are left behind: these end
// when their file system answers, or with the process.
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
	began  time.Time
	// brief says that [Group.Brief] made the task, and awaited that it still waits for it. Both and
	// err, how the task ended, are guarded by the group's lock. So are held, which says that the
	// task has called [Hold], and left, that it is left behind.
	brief, awaited bool
	held, left     bool
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
	return !t.left && g.active[key] != t, t.err
}

// holdKey is the key of what [Hold] calls in the context of a task.
type holdKey struct{}

// Hold is for a task of [Group.Brief], with the context of the task: from here on, the task changes
// what the pod's end clears away, and so is not left behind. The error says that the task has to
// end.
func Hold(ctx context.Context) error {
	if hold, ok := ctx.Value(holdKey{}).(func() error); ok {
		return hold()
	}
	return ctx.Err()
}

// begin starts a task, unless a task of that key is active or the group has ended.
func (g *Group) begin(key string, t *task, fn func(context.Context) error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.active[key]; ok || g.ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithCancel(g.ctx)
	t.cancel, t.done, t.began = cancel, make(chan struct{}), time.Now()
	g.active[key] = t
	delete(g.ended, key)
	held := context.WithValue(ctx, holdKey{}, func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		t.held = ctx.Err() == nil
		return ctx.Err()
	})
	g.wg.Add(1)
	go func() {
		defer cancel()
		err := g.run(held, fn)
		if g.end(key, t, err) {
			g.wake()
		}
		if !t.left { // which does not change after the end
			g.wg.Done()
		}
	}()
	return true
}

// end notes how a task ended, and reports whether the worker has to know.
func (g *Group) end(key string, t *task, err error) (wake bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(t.done)
	if t.left {
		return false
	}
	delete(g.active, key)
	if t.err = err; !t.brief {
		g.ended[key] = err
	}
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

// Began returns when the active task of that key began; zero if there is none.
func (g *Group) Began(key string) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.active[key]; t != nil {
		return t.began
	}
	return time.Time{}
}

// LeaveBehind cancels the task of that key and forgets it, although it may wait for a file system
// for ever: nobody joins it, and its end wakes nobody. It reports whether no such task is active
// any more. Tasks of [Group.Start], and those that have called [Hold], stay.
func (g *Group) LeaveBehind(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.active[key]
	if t == nil {
		return true
	}
	if !t.brief || t.held {
		return false
	}
	t.left = true
	t.cancel()
	delete(g.active, key)
	g.wg.Done()
	return true
}

// Wait joins all tasks.
func (g *Group) Wait() { g.wg.Wait() }
