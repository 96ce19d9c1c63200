package native

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/retry"
)

// unknownExit is the exit code of a process whose end nobody saw, as in the shims of containerd.
const unknownExit = 255

// exit is how a process ended.
type exit struct {
	code int32
	at   time.Time
	// lost says that containerd does not know how it ended.
	lost bool
}

// watch calls ended once the process of a task has ended. It does not if the runtime is closed
// before.
func (r *Runtime) watch(task client.Task, ended func(exit)) error {
	return r.groups.Go(func() {
		if e, ok := awaitExit(r.closing, task); ok {
			ended(e)
		}
	})
}

// awaitExit waits until the process of a task has ended. If containerd goes away, it waits until
// containerd is back. It returns false if ctx ends before.
func awaitExit(ctx context.Context, task client.Task) (exit, bool) {
	again := retry.Backoff{First: 50 * time.Millisecond, Most: 2 * time.Second}
	for failures := 1; ; failures++ {
		ended, err := task.Wait(ctx)
		if err == nil {
			var code uint32
			var at time.Time
			status := <-ended
			if code, at, err = result(status); err == nil {
				return exit{code: int32(code), at: at}, true
			}
		}
		if errdefs.IsNotFound(err) {
			return exit{code: unknownExit, at: time.Now(), lost: true}, true
		}
		if !again.Wait(ctx, failures) {
			return exit{}, false
		}
	}
}

// result returns how a process ended. An error in status is still one of gRPC (containerd's client,
// 2.4.2), of which errdefs knows nothing.
func result(status client.ExitStatus) (code uint32, at time.Time, err error) {
	code, at, err = status.Result()
	return code, at, errgrpc.ToNative(err)
}

// loadTask returns the task of a container in containerd, nil without an error if there is none.
func (r *Runtime) loadTask(ctx context.Context, id string) (client.Task, error) {
	c, err := r.client.LoadContainer(ctx, id)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for container %s in containerd: %w", id, err)
	}
	task, err := c.Task(ctx, nil)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the process of %s in containerd: %w", id, err)
	}
	return task, nil
}

// endTask kills what runs in a container and removes the task. It succeeds if there is none.
func (r *Runtime) endTask(ctx context.Context, id string) error {
	task, err := r.loadTask(ctx, id)
	if err != nil || task == nil {
		return err
	}
	if err := kill(ctx, task, unix.SIGKILL); err != nil {
		return err
	}
	if _, ok := awaitExit(ctx, task); !ok {
		return fmt.Errorf("wait for the end of %s: %w", id, ctx.Err())
	}
	return deleteTask(ctx, task)
}

// shimGone is in containerd's error when the shim of a task has ended, or ends, and containerd has
// not seen it yet. containerd then ends the process itself. It tells this with no code (2.4.2).
const shimGone = "ttrpc: closed"

// kill sends a signal to a process. It succeeds if the process has ended, or is about to because
// its shim is gone: who needs its end waits for it.
func kill(ctx context.Context, task client.Task, signal unix.Signal) error {
	var opts []client.KillOpts
	if signal == unix.SIGKILL {
		opts = append(opts, client.WithKillAll)
	}
	err := task.Kill(ctx, signal, opts...)
	if err == nil || errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err) ||
		strings.Contains(err.Error(), shimGone) {
		return nil
	}
	return fmt.Errorf("send %s to %s: %w", signal, task.ID(), err)
}

// deleteTask removes the task of a process that has ended.
func deleteTask(ctx context.Context, task client.Task) error {
	if _, err := task.Delete(ctx); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove the ended process of %s: %w", task.ID(), err)
	}
	return nil
}

// deleteContainer removes a container and its snapshot from containerd. It succeeds if they are
// gone.
func (r *Runtime) deleteContainer(ctx context.Context, id string) error {
	if err := r.endTask(ctx, id); err != nil {
		return err
	}
	c, err := r.client.LoadContainer(ctx, id)
	if errdefs.IsNotFound(err) {
		return r.RemoveLayer(ctx, id) // berth may have been killed before the container had it
	}
	if err == nil {
		err = c.Delete(ctx, client.WithSnapshotCleanup)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove container %s from containerd: %w", id, err)
	}
	return nil
}

// await waits for a channel to be closed.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
