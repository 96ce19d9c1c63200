package watched

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/source/objects"
)

// common reports whether a key is one of the few that are the same for all pods. Requests for these
// take no turns: no pod waits for what others use.
func common(key objects.Key) bool { return key.Name == "" || key == master }

// turn waits until a pod that uses an entry has a turn for a request. end ends the turn, and may be
// called more than once.
func (w *Watcher) turn(ctx context.Context, e *entry) (end func(), err error) {
	if common(e.key) {
		return func() {}, nil
	}
	w.mu.Lock()
	turn := w.turns.Queue(slices.Collect(maps.Keys(e.users))...)
	e.turn = turn
	w.mu.Unlock()
	return turn.End, turn.Wait(ctx)
}

// join lets an entry that waits for a turn have the turn of one more pod. The caller holds mu.
func (e *entry) join(uid types.UID) {
	e.users[uid] = struct{}{}
	if e.turn != nil {
		e.turn.Join(uid)
	}
}

// source returns what follows an entry. A list and the watch that begins with it have one turn: a
// watch that waited behind the lists of thousands of other objects could begin at a revision that
// the API server has no more. end ends the turn that is under way when nobody follows any more.
func (w *Watcher) source(e *entry) (source kube.Source[objects.Object], end func()) {
	var held func() // ends the turn; nil without one
	end = func() {
		if held != nil {
			held()
		}
		held = nil
	}
	take := func(ctx context.Context) (err error) {
		if held == nil {
			held, err = w.turn(ctx, e)
		}
		return err
	}
	source.Name = describe(e.key)
	source.List = func(ctx context.Context) ([]objects.Object, string, error) {
		if err := take(ctx); err != nil {
			return nil, "", err
		}
		list, version, err := w.api.list(ctx, e.key)
		if err != nil {
			end()
		}
		return list, version, err
	}
	source.Watch = func(ctx context.Context, version string) (watch.Interface, error) {
		if err := take(ctx); err != nil {
			return nil, err
		}
		defer end()
		// The opening of a watch has no timeout. It must not keep the turn for ever.
		late := time.AfterFunc(requestTimeout, held)
		defer late.Stop()
		return w.api.watch(ctx, e.key, version)
	}
	return source, end
}
