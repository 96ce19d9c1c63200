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

// beside does the lasting work for a volume, unless isDone reports that it is done. It does the
// work at once if the caller has no [Slow].
func (b *bringUp) beside(
	key, doing string, isDone func(*bringUp) (bool, error), do func(context.Context, *bringUp) error,
) error {
	if done, err := isDone(b); err != nil || done {
		return err
	}
	if b.dynamic.Slow == nil {
		return do(b.ctx, b)
	}
	ended, err := b.dynamic.Slow(key, func(ctx context.Context) error {
		root, err := b.m.openPod(b.pod.UID) // the sync closes its own
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
