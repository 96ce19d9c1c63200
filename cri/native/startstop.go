package native

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/moby/sys/signal"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/internal/classify"
)

// drainTime is how long the output of a process that has ended is waited for. Only a process that
// it left behind, and that has its pipes, can make the wait so long.
const drainTime = 10 * time.Second

// stopSignal returns the name of the signal that asks a container to end: what its config says, or
// its image, or SIGTERM.
func stopSignal(asked runtimeapi.Signal, image string) (string, error) {
	name := asked.String()
	if asked == runtimeapi.Signal_RUNTIME_DEFAULT {
		name = image
	}
	if name == "" {
		return "SIGTERM", nil
	}
	if _, err := signal.ParseSignal(name); err != nil {
		return "", classify.Invalidf("stop signal: %v", err)
	}
	return name, nil
}

// StartContainer implements [cri.ContainerRuntime]. A container that cannot be started is exited
// afterwards.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	c, err := r.store.container(id)
	if err != nil {
		return err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	sb, err := r.store.sandbox(c.sandboxID)
	if err != nil {
		return classify.As(errdefs.ErrFailedPrecondition, fmt.Sprintf("start container %s: %v", id, err))
	}
	// While it starts, its sandbox cannot be stopped, and so nobody else gets the process ID of the
	// sandbox's pause process.
	if err := r.store.takeSandbox(ctx, sb); err != nil {
		return foreign(err)
	}
	defer sb.turn.give()
	if err := r.store.takeContainer(ctx, c); err != nil {
		return err
	}
	defer c.turn.give()
	if _, ready := sb.snapshot(); !ready {
		return classify.As(errdefs.ErrFailedPrecondition,
			fmt.Sprintf("start container %s: its sandbox %s is not ready", id, sb.id))
	}
	if record := c.snapshot(); record.state() != runtimeapi.ContainerState_CONTAINER_CREATED {
		return classify.As(errdefs.ErrFailedPrecondition,
			fmt.Sprintf("container %s was started already: it is %s", id, record.state()))
	}
	if err := r.start(ctx, sb, c); err != nil {
		if undone := r.failStart(ctx, c, err); undone != nil {
			err = fmt.Errorf("%w (and its end could not be recorded: %w)", err, undone)
		}
		return classify.As(errdefs.ErrUnknown, fmt.Sprintf("start container %s: %v", id, err))
	}
	return nil
}

func (r *Runtime) start(ctx context.Context, sb *sandbox, c *container) error {
	made, err := r.client.LoadContainer(ctx, c.id)
	if err != nil {
		return err
	}
	options := c.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if options.GetPid() == runtimeapi.NamespaceMode_TARGET {
		if _, err := r.target(sb, options); err != nil { // it may have ended since the creation
			return err
		}
	}
	streams, err := r.openIO(c)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.io = streams
	c.mu.Unlock()
	task, err := r.newTask(ctx, made, streams.create, userns(sb.namespaces()).task(c.snapshot().User)...)
	if err != nil {
		return err
	}
	streams.Made()
	oom := oomFile(task.Pid())
	if err := r.plugins.StartContainer(ctx, c.id, task.Pid()); err != nil {
		return err
	}
	began := time.Now().UnixNano()
	if err := task.Start(ctx); err != nil {
		return err
	}
	err = r.changeContainer(c, func(rec *containerRecord) { rec.StartedAt, rec.OOMFile = began, oom })
	if err != nil {
		return err
	}
	r.plugins.PostStartContainer(ctx, c.id, began)
	r.emit(cri.ContainerStarted, c.id, c.uid)
	return r.watchContainer(c, task)
}

// failStart ends what a start that failed has begun, and records the end.
func (r *Runtime) failStart(ctx context.Context, c *container, why error) error {
	ctx, cancel := undoing(ctx)
	defer cancel()
	if err := r.endTask(ctx, c.id); err != nil {
		return err
	}
	r.finishIO(c)
	r.noteContainer(c, func(rec *containerRecord) {
		rec.FinishedAt, rec.ExitCode, rec.Reason, rec.Message = time.Now().UnixNano(), startErrorCode, reasonStartError,
			why.Error()
		if rec.StartedAt == 0 {
			rec.StartedAt = rec.FinishedAt
		}
	})
	r.plugins.StopContainer(ctx, c.id, startErrorCode, c.snapshot().FinishedAt)
	r.emit(cri.ContainerStopped, c.id, c.uid)
	return nil
}

// finishIO ends the copying of an ended container's output, once it is in the log.
func (r *Runtime) finishIO(c *container) {
	c.mu.Lock()
	streams := c.io
	c.mu.Unlock()
	if streams == nil {
		return
	}
	if err := streams.finish(drainTime); err != nil {
		r.cfg.Logger.Warn("the end of a container's output could not be carried to its log", "container", c.id,
			"error", err)
	}
}

// watchContainer records the end of the container's process. By then its output is in the log. The
// task goes last: a kill of berth in between loses neither the output nor the exit code.
func (r *Runtime) watchContainer(c *container, task client.Task) error {
	ended := make(chan struct{})
	c.mu.Lock()
	c.task, c.ended = task, ended
	c.mu.Unlock()
	return r.watch(task, func(e exit) {
		ctx, cancel := undoing(r.closing)
		defer cancel()
		killed := oomKills(c.snapshot().OOMFile) > 0
		r.finishIO(c)
		r.noteContainer(c, func(rec *containerRecord) { rec.finish(e, killed) })
		r.emit(cri.ContainerStopped, c.id, c.uid) // who restarts it need not wait for the task's removal
		if err := deleteTask(ctx, task); err != nil {
			r.cfg.Logger.Warn("a container has ended, and containerd could not remove its process yet",
				"container", c.id, "error", err)
		}
		r.plugins.StopContainer(ctx, c.id, e.code, e.at.UnixNano()) // before anybody can remove it
		close(ended)
	})
}

// finish sets how the container ended.
func (rec *containerRecord) finish(e exit, oom bool) {
	rec.FinishedAt, rec.ExitCode = max(e.at.UnixNano(), rec.StartedAt), e.code
	switch {
	case e.lost:
		rec.Reason, rec.Message = reasonUnknown, "nobody saw its end"
	case oom:
		rec.Reason = reasonOOM
	case e.code == 0:
		rec.Reason = reasonCompleted
	default:
		rec.Reason = reasonError
	}
}

// StopContainer implements [cri.ContainerRuntime].
func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	c, err := r.store.container(id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.cfg.RequestTimeout+grace)
		defer cancel()
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	return r.stopContainer(ctx, c, grace)
}

// stopContainer sends the stop signal, unless there is no grace, and then kills. It takes the turn
// only to wait for a start: a stop with less grace overtakes one with more.
func (r *Runtime) stopContainer(ctx context.Context, c *container, grace time.Duration) error {
	if err := c.turn.take(ctx); err != nil {
		return beforeKill(err)
	}
	c.turn.give()
	c.mu.Lock()
	task, ended, name := c.task, c.ended, c.record.StopSignal
	c.mu.Unlock()
	if task == nil {
		return nil
	}
	if grace > 0 {
		number, err := signal.ParseSignal(name)
		if err != nil {
			return fmt.Errorf("stop container %s: %w", c.id, err)
		}
		if err := kill(ctx, task, number); err != nil {
			return fmt.Errorf("stop container %s: %w", c.id, beforeKill(err))
		}
		gone, err := within(ctx, ended, grace)
		if gone || err != nil {
			return err
		}
	}
	select {
	case <-ended:
		return nil
	default:
	}
	if err := kill(ctx, task, unix.SIGKILL); err != nil {
		return fmt.Errorf("stop container %s: %w", c.id, beforeKill(err))
	}
	if err := await(ctx, ended); err != nil {
		return fmt.Errorf("stop container %s: wait for its end: %w", c.id, err)
	}
	return nil
}

// beforeKill returns the error of a stop that has killed nothing: a deadline that has passed does
// not say that the container outlived a SIGKILL, but that containerd does not answer.
func beforeKill(err error) error {
	if errdefs.IsDeadlineExceeded(err) {
		return classify.As(errdefs.ErrUnavailable, "containerd does not answer: "+err.Error())
	}
	return err
}

// within waits for a channel to be closed, and reports whether it was closed in time.
func within(ctx context.Context, done <-chan struct{}, limit time.Duration) (bool, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, fmt.Errorf("wait for the end of the grace: %w", ctx.Err())
	}
}

// signalOf returns the CRI's Signal of a name, with or without SIG before it.
func signalOf(name string) runtimeapi.Signal {
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	return runtimeapi.Signal(runtimeapi.Signal_value[name])
}
