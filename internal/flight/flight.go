package flight

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"golang.org/x/sync/singleflight"
)

// Group shares the answers to questions that are under way. The zero value is ready, and logs
// nothing.
type Group[V any] struct {
	// Log gets the stacks of panics; nil for none.
	Log *slog.Logger

	asking singleflight.Group
}

// Do returns the result of ask, or of another caller's ask with the same key that is under way. ask
// continues when ctx ends, because others may wait for it. If ask panics, that is the error.
func (g *Group[V]) Do(ctx context.Context, key string, ask func(ctx context.Context) (V, error)) (V, error) {
	answer := g.asking.DoChan(key, func() (any, error) { return g.try(context.WithoutCancel(ctx), ask) })
	select {
	case r := <-answer:
		v, _ := r.Val.(V)
		return v, r.Err
	case <-ctx.Done():
		var none V
		return none, context.Cause(ctx)
	}
}

// try calls ask and turns a panic into an error.
func (g *Group[V]) try(ctx context.Context, ask func(ctx context.Context) (V, error)) (v V, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			if g.Log != nil {
				g.Log.Error("panic while an answer was looked for", "cause", cause, "stack", string(debug.Stack()))
			}
			err = fmt.Errorf("internal error: panic: %v", cause)
		}
	}()
	return ask(ctx)
}
