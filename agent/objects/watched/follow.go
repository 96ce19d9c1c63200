package watched

import (
	"context"
	"log/slog"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/objects"
)

// follow keeps an entry's objects until ctx ends, or until they cannot change any more.
func (w *Watcher) follow(ctx context.Context, e *entry) {
	failures := 0
	cluster.Follow(ctx, cluster.Source[objects.Object]{
		Name: told(e.key),
		List: func(ctx context.Context) ([]objects.Object, string, error) { return w.api.list(ctx, e.key) },
		Watch: func(ctx context.Context, version string) (watch.Interface, error) {
			return w.api.watch(ctx, e.key, version)
		},
	}, cluster.Handler[objects.Object]{
		Replace: func(list []objects.Object) { w.replace(e, list) },
		Set:     func(o objects.Object) { w.put(e, o) },
		Remove:  func(o objects.Object) { w.remove(e, objects.KeyOf(o)) },
		Final:   func(o objects.Object) bool { return e.key.Name != "" && final(o) },
		Trouble: func(err error) {
			if err == nil {
				failures = 0
				return
			}
			failures++
			w.trouble(e, failures, err)
		},
		Ready: w.deps.Ready,
		// There may be hundreds of objects in use, and pods tell what they miss.
		Logger: slog.New(slog.DiscardHandler),
	})
}

// trouble takes note of so many failures in a row to read an entry, of which err is the last.
func (w *Watcher) trouble(e *entry, failures int, err error) {
	w.deps.Logger.Debug("an object in use cannot be read; it is tried again", "object", told(e.key), "failures", failures, "err", err)
	if failures > 1 || !apierrors.IsForbidden(err) { // the server may learn a moment later than the node that the pod is here
		w.failed(e, err)
	}
}

// final reports whether an object is marked immutable: it is followed no more.
func final(o objects.Object) bool {
	var immutable *bool
	switch o := o.(type) {
	case *v1.ConfigMap:
		immutable = o.Immutable
	case *v1.Secret:
		immutable = o.Immutable
	}
	return immutable != nil && *immutable
}
