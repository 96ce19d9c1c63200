package containerd

import (
	"context"
	"errors"
	"fmt"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/cri/internal/classify"
	"github.com/berthd/berth/internal/retry"
)

const (
	// endTimeout limits the end of a task that outlived its sandbox. endWait is the time between
	// two attempts to delete the task.
	endTimeout = 5 * time.Second
	endWait    = 20 * time.Millisecond
)

// RemovePodSandbox removes the sandbox and its containers by the CRI. It then ends the task that
// containerd may have kept of the sandbox.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	if err := r.Runtime.RemovePodSandbox(ctx, id); err != nil {
		return err
	}
	return r.endLeftTask(ctx, id)
}

// endLeftTask ends the task of a removed sandbox if there is one left. When a client dies during
// RunPodSandbox, containerd (seen on 2.4.2: "cannot delete running task", sandbox marked unknown)
// forgets the sandbox and keeps its shim, its mount and its runc state without limit. The CRI has
// no call for it, so this uses containerd's own task service. It does nothing with runtimes that
// have no such service.
func (r *Runtime) endLeftTask(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	ctx = withNamespace(ctx)
	tasks := tasksapi.NewTasksClient(r.conn)
	if _, err := tasks.Get(ctx, &tasksapi.GetRequest{ContainerID: id}); err != nil {
		return noTaskLeft(err)
	}
	r.cfg.Logger.Warn("containerd kept the task of a removed sandbox; it is ended now", "sandbox", id)
	for {
		_, killErr := tasks.Kill(ctx, &tasksapi.KillRequest{ContainerID: id, Signal: uint32(unix.SIGKILL), All: true})
		_, err := tasks.Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: id})
		if err == nil || errdefs.IsNotFound(errgrpc.ToNative(err)) {
			return nil
		}
		if !retry.Sleep(ctx, endWait) {
			err = errors.Join(classify.Error("delete_task", err), classify.Error("kill_task", killErr))
			return fmt.Errorf("end the task that sandbox %s left: %w", id, err)
		}
	}
}

// noTaskLeft returns nil for the answers that mean that no task is left, or that the runtime has no
// task service.
func noTaskLeft(err error) error {
	if native := errgrpc.ToNative(err); errdefs.IsNotFound(native) || errdefs.IsNotImplemented(native) {
		return nil
	}
	return fmt.Errorf("look for what the sandbox left: %w", classify.Error("get_task", err))
}
