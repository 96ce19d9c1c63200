package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/berthd/berth/cri/internal/classify"
)

// maxExecOutput bounds the outputs of ExecSync together, in bytes; the rest is dropped (CRI, the
// comment on ExecSyncResponse). It leaves room in a message of 16 MiB, the kubelet's limit.
const maxExecOutput = 16_000_000

// command is a command in a container.
type command struct {
	args           []string
	tty            bool
	stdin          io.Reader // nil for none
	stdout, stderr io.Writer
	resize         <-chan remotecommand.TerminalSize // nil for none
}

// ExecSync implements [cri.StreamRuntime]. A command that does not end in time is killed.
func (r *Runtime) ExecSync(
	ctx context.Context, id string, args []string, timeout time.Duration,
) (*runtimeapi.ExecSyncResponse, error) {
	c, err := r.store.container(id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	if timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	room := &room{left: maxExecOutput}
	stdout, stderr := &limitedBuffer{room: room}, &limitedBuffer{room: room}
	code, err := r.exec(ctx, c, command{args: args, stdout: stdout, stderr: stderr})
	if err != nil {
		return nil, fmt.Errorf("run a command in container %s: %w", id, err)
	}
	return &runtimeapi.ExecSyncResponse{Stdout: stdout.kept, Stderr: stderr.kept, ExitCode: code}, nil
}

// room is what several buffers may still keep together, in bytes.
type room struct {
	mu   sync.Mutex
	left int
}

// limitedBuffer keeps what is written to it as long as there is room.
type limitedBuffer struct {
	room *room
	kept []byte
}

// Write never fails.
func (l *limitedBuffer) Write(p []byte) (int, error) {
	l.room.mu.Lock()
	defer l.room.mu.Unlock()
	take := min(len(p), l.room.left)
	l.room.left -= take
	l.kept = append(l.kept, p[:take]...)
	return len(p), nil
}

// exec runs a command and returns its exit code. If ctx ends before, it kills the command.
func (r *Runtime) exec(ctx context.Context, c *container, cmd command) (int32, error) {
	if len(cmd.args) == 0 {
		return 0, classify.Invalidf("there is no command")
	}
	task, err := c.running()
	if err != nil {
		return 0, err
	}
	spec, err := task.Spec(ctx)
	if err != nil {
		return 0, err
	}
	process := spec.Process
	process.Args, process.Terminal = cmd.args, cmd.tty
	id := "exec-" + newID()[:16]
	stdin := &endingReader{Reader: cmd.stdin, ended: make(chan struct{})}
	started, err := task.Exec(ctx, id, process, r.execIO(c, id, cmd, stdin))
	if err != nil {
		return 0, foreign(err)
	}
	defer r.endExec(ctx, started)
	ended, err := started.Wait(context.WithoutCancel(ctx))
	if err != nil {
		return 0, err
	}
	if err := started.Start(ctx); err != nil {
		return 0, foreign(err)
	}
	return awaitExec(ctx, started, ended, stdin.ended, cmd.resize)
}

// execIO makes the pipes of a command.
func (r *Runtime) execIO(c *container, id string, cmd command, stdin *endingReader) cio.Creator {
	return func(string) (cio.IO, error) {
		at := func(stream string) string { return filepath.Join(r.containerDir(c.id), id+"-"+stream) }
		pipes := cio.Config{Terminal: cmd.tty, Stdout: at("stdout")}
		var in io.Reader
		if cmd.stdin != nil {
			pipes.Stdin, in = at("stdin"), stdin
		}
		if !cmd.tty {
			pipes.Stderr = at("stderr")
		}
		remove := func() error { return removeAll(pipes.Stdin, pipes.Stdout, pipes.Stderr) }
		return cio.NewAttach(cio.WithStreams(in, orNowhere(cmd.stdout), orNowhere(cmd.stderr)))(cio.NewFIFOSet(pipes, remove))
	}
}

// orNowhere returns a writer also where nobody wants the output.
func orNowhere(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// awaitExec waits for the end of a command and of its output. When there is no more input, it tells
// the command.
func awaitExec(
	ctx context.Context, started client.Process, ended <-chan client.ExitStatus, noInput <-chan struct{},
	resize <-chan remotecommand.TerminalSize,
) (int32, error) {
	for {
		select {
		case <-noInput:
			noInput = nil
			if err := started.CloseIO(ctx, client.WithStdinCloser); err != nil && !errdefs.IsNotFound(err) {
				return 0, err
			}
		case size, ok := <-resize:
			if !ok {
				resize = nil
			} else {
				_ = started.Resize(ctx, uint32(size.Width), uint32(size.Height)) // the next size comes soon
			}
		case status := <-ended:
			code, _, err := result(status)
			if err != nil {
				return 0, err
			}
			waitIO(started.IO(), drainTime)
			return int32(code), nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// endExec kills a command that still runs, and removes it.
func (r *Runtime) endExec(ctx context.Context, started client.Process) {
	undo, cancel := undoing(ctx)
	defer cancel()
	_, err := started.Delete(undo, client.WithProcessKill)
	if err != nil && !errdefs.IsNotFound(err) && !errors.Is(err, context.Canceled) {
		r.cfg.Logger.Warn("a command in a container has ended, and containerd could not remove it", "command",
			started.ID(), "error", err)
	}
}

// endingReader says when there is no more input.
type endingReader struct {
	io.Reader
	once  sync.Once
	ended chan struct{}
}

// Read implements [io.Reader].
func (e *endingReader) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if err != nil {
		e.once.Do(func() { close(e.ended) })
	}
	return n, err
}
