package volumes

import (
	"context"
	"errors"
	"fmt"
)

// Slow runs what may last (mounting from a server, making a file system, changing the owner of many files) beside the caller's passes. do runs under
// key, unless it does so already; ended says that it has ended since the last call about it, with err. The caller calls [Manager.Ensure] again when do ends, and
// ends do before it calls [Manager.Remove].
type Slow func(key string, do func(context.Context) error) (ended bool, err error)

// ErrUnderWay means that a volume is being brought up: that is no failure.
var ErrUnderWay = errors.New("under way")

// beside does what takes long for a volume, unless isDone says that it is done. Without somebody to run it beside the pass it is done at once.
func (b *bringUp) beside(key, doing string, isDone func(*bringUp) (bool, error), do func(context.Context, *bringUp) error) error {
	if done, err := isDone(b); err != nil || done {
		return err
	}
	if b.dynamic.Slow == nil {
		return do(b.ctx, b)
	}
	ended, err := b.dynamic.Slow(key, func(ctx context.Context) error {
		root, err := b.m.openPod(b.pod.UID) // the pass closes its own
		if err != nil {
			return fmt.Errorf("open directory of pod %s/%s: %w", b.pod.Namespace, b.pod.Name, err)
		}
		defer closeHandle(root)
		return do(ctx, &bringUp{ctx: ctx, m: b.m, pod: b.pod, root: root, path: b.path})
	})
	if err != nil {
		return err
	}
	done := false
	if ended {
		done, err = isDone(b)
	}
	if err != nil || done {
		return err
	}
	return &classified{text: doing, class: ErrUnderWay}
}
