package native

import (
	"context"
	"errors"
	"fmt"
	"slices"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/berthd/berth/cri/internal/shims"
)

// newTask makes a container's first process. It goes on when the caller gives up, and is then
// undone: containerd would leave its shim alone, which nobody finds again (seen on 2.4.2, see
// [Runtime.endLostShims]).
func (r *Runtime) newTask(
	ctx context.Context, c client.Container, io cio.Creator, opts ...client.NewTaskOpts,
) (client.Task, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.RequestTimeout)
	defer cancel()
	return c.NewTask(ctx, io, opts...)
}

// endLostShims ends the shims of this runtime that serve no task, and removes their bundles. A
// process of berth that was killed while containerd made a task leaves one. Nobody may make a task
// at the same time.
func (r *Runtime) endLostShims(ctx context.Context) error {
	whose := shims.Containerd{Socket: r.cfg.Containerd, Namespace: r.cfg.Namespace}
	found, err := shims.Of(ctx, whose, false)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range found {
		if r.serves(ctx, s.ID) {
			continue
		}
		if err := shims.End(ctx, s); err != nil {
			errs = append(errs, err)
			continue
		}
		if !s.Removed {
			if err := shims.RemoveBundle(s.Bundle); err != nil {
				errs = append(errs, fmt.Errorf("remove the directory of the lost shim %d of %s: %w", s.PID, s.ID, err))
				continue
			}
		}
		r.cfg.Logger.Warn("containerd had lost a shim; it is ended now", "pid", s.PID, "id", s.ID)
	}
	return errors.Join(errs...)
}

// serves reports whether a shim serves a task, or may: one of its own ID, or of a container of the
// sandbox that has this ID.
func (r *Runtime) serves(ctx context.Context, id string) bool {
	ids := []string{id}
	for _, c := range r.store.containersOf(id) {
		ids = append(ids, c.id)
	}
	return slices.ContainsFunc(ids, func(id string) bool {
		_, err := r.client.TaskService().Get(ctx, &tasksapi.GetRequest{ContainerID: id})
		return !errdefs.IsNotFound(errgrpc.ToNative(err))
	})
}
