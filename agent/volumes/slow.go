package volumes

import (
	"context"
	"errors"
	"fmt"
)

// Slow runs do beside the caller's sync, because do may last: it mounts from a server, makes a file
// system, or changes the owner of many files. do runs under key, unless it runs under key already.
// ended reports that do has ended since the last call about it, with err. The caller calls
// [Manager.Ensure] again when do ends, and stops do before it calls [Manager.Remove].
type Slow func(key string, do func(context.Context) error) (ended bool, err error)

// ErrUnderWay means that a volume is being brought up, which is no failure.
var ErrUnderWay = errors.New("under way")

// work is lasting work for a volume. doing says in a status what is done.
type work struct {
	key, doing string
	isDone     func(*bringUp) (bool, error)
	// turn waits until do may begin. Nothing is open meanwhile: many may wait, and for long. nil means
	// that do may begin at once.
	turn func(ctx context.Context) (leave func(), err error)
	do   func(context.Context, *bringUp) error
}

// beside does work beside the sync, unless it is done. It does the work at once if the caller has
// no [Slow].
func (b *bringUp) beside(w work) error {
	if done, err := w.isDone(b); err != nil || done {
		return err
	}
	if b.dynamic.Slow == nil {
		leave, err := w.enter(b.ctx)
		if err != nil {
			return err
		}
		defer leave()
		return w.do(b.ctx, b)
	}
	ended, err := b.dynamic.Slow(w.key, func(ctx context.Context) error {
		leave, err := w.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		root, err := b.m.openPod(b.pod.UID) // the sync closes its own
		if err != nil {
			return fmt.Errorf("open directory of pod %s/%s: %w", b.pod.Namespace, b.pod.Name, err)
		}
		defer closeHandle(root)
		return w.do(ctx, &bringUp{ctx: ctx, m: b.m, pod: b.pod, root: root, path: b.path})
	})
	if err != nil {
		return err
	}
	done := false
	if ended {
		done, err = w.isDone(b)
	}
	if err != nil || done {
		return err
	}
	return &classified{text: w.doing, class: ErrUnderWay}
}

// enter waits for the work's turn.
func (w *work) enter(ctx context.Context) (leave func(), err error) {
	if w.turn == nil {
		return func() {}, nil
	}
	return w.turn(ctx)
}
