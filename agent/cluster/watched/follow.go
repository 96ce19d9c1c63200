package watched

import (
	"context"
	"log/slog"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/source/objects"
)

// follow keeps an entry's objects current until ctx ends, or until they cannot change any more.
func (w *Watcher) follow(ctx context.Context, e *entry) {
	failures := 0
	source, end := w.source(e)
	defer end()
	kube.Follow(ctx, source, kube.Handler[objects.Object]{
		Replace: func(list []objects.Object) { w.replace(e, list) },
		Set:     func(o objects.Object) { w.put(e, o) },
		Remove:  func(o objects.Object) { w.remove(e, objects.KeyOf(o)) },
		Final:   func(o objects.Object) bool { return e.key.Name != "" && final(o) },
		Failed: func(err error) {
			if err == nil {
				failures = 0
				return
			}
			failures++
			w.noteFailure(e, failures, err)
		},
		Ready: w.deps.Ready,
		// The pods report what they miss; a line for each of hundreds of objects would add nothing.
		Logger: slog.New(slog.DiscardHandler),
	})
}

// noteFailure records that an entry could not be read for so many failures in a row. err is the
// last.
func (w *Watcher) noteFailure(e *entry, failures int, err error) {
	w.deps.Logger.Debug("an object in use cannot be read; it is tried again", "object", describe(e.key),
		"failures", failures, "err", err)
	if failures > 1 ||
		// the server may learn a moment later than the node that the pod is here
		!apierrors.IsForbidden(err) {
		w.failed(e, err)
	}
}

// final reports whether an object is marked immutable. Such an object is not followed any more.
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
