package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/metadata"
)

const (
	// reapTimeout bounds the end of a task that outlived its sandbox, reapWait is between two looks whether it has ended.
	reapTimeout = 5 * time.Second
	reapWait    = 20 * time.Millisecond
)

// reap ends the task of a sandbox that was removed, should there be one left: when a client dies in the middle of RunPodSandbox, containerd (seen on
// 2.4.2: "cannot delete running task", sandbox marked unknown) forgets the sandbox and keeps its shim, its mount and its runc state for ever. The CRI
// has no word for it, so this asks containerd's own task service, on the same socket; runtimes that have none are left alone.
func (r *Runtime) reap(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, reapTimeout)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, namespaceHeader, criNamespace)
	tasks := tasksapi.NewTasksClient(r.conn)
	if _, err := tasks.Get(ctx, &tasksapi.GetRequest{ContainerID: id}); err != nil {
		return nothingToReap(err)
	}
	r.cfg.Logger.Warn("containerd kept the task of a removed sandbox; it is ended now", "sandbox", id)
	for {
		_, killErr := tasks.Kill(ctx, &tasksapi.KillRequest{ContainerID: id, Signal: uint32(unix.SIGKILL), All: true})
		_, err := tasks.Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: id})
		if err == nil || errdefs.IsNotFound(errgrpc.ToNative(err)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("end the task that sandbox %s left: %w", id, errors.Join(classify("delete_task", err), classify("kill_task", killErr)))
		case <-time.After(reapWait):
		}
	}
}

// nothingToReap returns nil for the answers that mean that no task is left, or that the runtime has no task service.
func nothingToReap(err error) error {
	if native := errgrpc.ToNative(err); errdefs.IsNotFound(native) || errdefs.IsNotImplemented(native) {
		return nil
	}
	return fmt.Errorf("look for what the sandbox left: %w", classify("get_task", err))
}
