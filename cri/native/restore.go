package native

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// restore reads the records and looks in containerd which of the processes still run. What an
// earlier process of berth did not finish making is there as not ready, or as exited, so that it
// can be removed. What has a record that cannot be read is forgotten.
func (r *Runtime) restore(ctx context.Context) error {
	sandboxes, damaged, err := r.store.sandboxRecords.load()
	if err != nil {
		return err
	}
	for _, record := range sandboxes {
		sb := newSandbox(*record)
		if err := r.restoreSandbox(ctx, sb); err != nil {
			return fmt.Errorf("restore sandbox %s: %w", sb.id, err)
		}
	}
	containers, more, err := r.store.containerRecords.load()
	if err != nil {
		return err
	}
	for _, why := range append(damaged, more...) {
		r.cfg.Logger.Error("the record of a sandbox or a container is damaged, and set aside: what is left of it is removed",
			"error", why)
	}
	for _, record := range containers {
		uid := ""
		if sb, err := r.store.sandbox(record.SandboxID); err == nil {
			uid = sb.uid()
		}
		c := newContainer(*record, uid)
		if err := r.restoreContainer(ctx, c); err != nil {
			return fmt.Errorf("restore container %s: %w", c.id, err)
		}
	}
	return nil
}

func (r *Runtime) restoreSandbox(ctx context.Context, sb *sandbox) error {
	if err := r.store.addSandbox(sb); err != nil {
		return err
	}
	r.reserveLabel(sb)
	if !sb.pause {
		if !sb.record.Up || sb.record.Stopped || r.kept(sb) {
			return nil
		}
		r.noteSandbox(sb, func(rec *sandboxRecord) { rec.Up = false })
		return nil
	}
	task, err := r.loadTask(ctx, sb.id)
	if err != nil || task == nil || !sb.record.Up {
		return err
	}
	status, err := task.Status(ctx)
	if err != nil {
		return onlyIfNot(err, errdefs.IsNotFound)
	}
	if status.Status == client.Created { // berth was killed before it let the process go on
		r.noteSandbox(sb, func(rec *sandboxRecord) { rec.Up = false })
		return nil
	}
	return r.watchPause(sb, task)
}

func (r *Runtime) restoreContainer(ctx context.Context, c *container) error {
	// A container whose sandbox has no record is one that a removal had nearly finished.
	if err := r.store.addContainer(c); err != nil {
		return errors.Join(r.forgetContainer(ctx, c), onlyIfNot(err, errdefs.IsNotFound))
	}
	if c.record.FinishedAt != 0 {
		return r.endTask(ctx, c.id) // berth was killed before it removed the process
	}
	task, err := r.attachTask(ctx, c)
	if err != nil {
		return err
	}
	if task == nil {
		return r.restoreWithoutTask(ctx, c)
	}
	status, err := task.Status(ctx)
	if err != nil {
		return err
	}
	if status.Status == client.Created {
		return r.failStart(ctx, c, errors.New("berth was restarted while the container was being started"))
	}
	if c.record.StartedAt == 0 {
		began := time.Now().UnixNano()
		r.noteContainer(c, func(rec *containerRecord) { rec.StartedAt = began })
	}
	return r.watchContainer(c, task)
}

// onlyIfNot returns the error unless it is of a class.
func onlyIfNot(err error, class func(error) bool) error {
	if class(err) {
		return nil
	}
	return err
}

// attachTask returns the container's task and carries its output again. It returns nil if there is
// no task.
func (r *Runtime) attachTask(ctx context.Context, c *container) (client.Task, error) {
	made, err := r.client.LoadContainer(ctx, c.id)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	streams, err := r.openIO(c)
	if err != nil {
		return nil, err
	}
	task, err := made.Task(ctx, streams.resume)
	if err != nil {
		streams.close()
		return nil, onlyIfNot(err, errdefs.IsNotFound)
	}
	c.io = streams
	return task, nil
}

// restoreWithoutTask decides what a container is that has no process: it was never started, or it
// ended and nobody saw how, as in a restart of the machine. One that was not made completely cannot
// be started.
func (r *Runtime) restoreWithoutTask(ctx context.Context, c *container) error {
	_, err := r.client.LoadContainer(ctx, c.id)
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	created := c.record.state() == runtimeapi.ContainerState_CONTAINER_CREATED
	if err == nil && created {
		return nil
	}
	if !created {
		if err := r.recoverOutput(c); err != nil {
			return err
		}
	}
	r.noteContainer(c, func(rec *containerRecord) {
		rec.finish(exit{code: unknownExit, at: time.Now(), lost: true}, false)
		if rec.StartedAt == 0 {
			rec.StartedAt = rec.FinishedAt
		}
	})
	return nil
}

// recoverOutput carries to its log what a container without a process has written before its end.
func (r *Runtime) recoverOutput(c *container) error {
	streams, err := r.openIO(c)
	if err != nil {
		return err
	}
	if err := streams.Resume(); err != nil {
		streams.close()
		return err
	}
	c.io = streams
	r.finishIO(c)
	return nil
}
