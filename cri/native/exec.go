package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/berthd/berth/cri/internal/classify"
	"github.com/berthd/berth/internal/retry"
)

// maxExecOutput bounds the outputs of ExecSync together, in bytes; the rest is dropped (CRI, the
// comment on ExecSyncResponse). It leaves room in a message of 16 MiB, the kubelet's limit.
const maxExecOutput = 16_000_000

// killTime is how long a call whose time is over waits until containerd has killed its command.
const killTime = time.Second

// command is a command in a container.
type command struct {
	args           []string
	tty            bool
	stdin          io.Reader // nil for none
	stdout, stderr io.Writer
	resize         <-chan remotecommand.TerminalSize // nil for none
	timeout        time.Duration                     // from its start to its kill; 0 for none
}

// ExecSync implements [cri.StreamRuntime]. A command that does not end in time is killed. The time
// counts from the command's start, so that a containerd that does not answer fails no command:
// before the start, and if it does not even answer about the kill, the error is
// errdefs.IsUnavailable.
func (r *Runtime) ExecSync(
	ctx context.Context, id string, args []string, timeout time.Duration,
) (*runtimeapi.ExecSyncResponse, error) {
	c, err := r.store.container(id)
	if err != nil {
		return nil, err
	}
	room := &room{left: maxExecOutput}
	stdout, stderr := &limitedBuffer{room: room}, &limitedBuffer{room: room}
	code, err := r.exec(ctx, c, command{args: args, stdout: stdout, stderr: stderr, timeout: timeout})
	if err != nil {
		return nil, fmt.Errorf("run a command in container %s: %w", id, err)
	}
	return &runtimeapi.ExecSyncResponse{Stdout: stdout.bytes(), Stderr: stderr.bytes(), ExitCode: code}, nil
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

// bytes returns what was kept. The command's output may still be read beside.
func (l *limitedBuffer) bytes() []byte {
	l.room.mu.Lock()
	defer l.room.mu.Unlock()
	return l.kept
}

// exec runs a command and returns its exit code. If ctx or the command's time ends before, it kills
// the command.
func (r *Runtime) exec(ctx context.Context, c *container, cmd command) (int32, error) {
	if len(cmd.args) == 0 {
		return 0, classify.Invalidf("there is no command")
	}
	task, err := c.running()
	if err != nil {
		return 0, err
	}
	ctx = namespaces.WithNamespace(ctx, r.cfg.Namespace)
	starting, cancel := r.bounded(ctx)
	defer cancel()
	stdin := &endingReader{Reader: cmd.stdin, ended: make(chan struct{})}
	started, err := r.newExec(starting, c, task, cmd, stdin)
	if err != nil {
		return 0, r.notStarted(starting, err)
	}
	// Of a command that was never started, containerd may tell no end.
	waiting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended, err := started.Wait(waiting)
	if err == nil {
		err = started.Start(starting)
	}
	if err != nil {
		r.endExec(starting, started, false)
		return 0, r.notStarted(starting, foreign(err))
	}
	running := ctx
	if cmd.timeout > 0 {
		running, cancel = context.WithTimeout(ctx, cmd.timeout)
		defer cancel()
	}
	code, err := awaitExec(running, started, ended, stdin.ended, cmd.resize)
	if answered := r.endExec(running, started, err == nil); !answered && errdefs.IsDeadlineExceeded(err) {
		return 0, classify.As(errdefs.ErrUnavailable,
			"the command has not ended in time, as far as is known, and containerd does not answer")
	}
	return code, err
}

// newExec makes the process of a command, which does not run yet.
func (r *Runtime) newExec(
	ctx context.Context, c *container, task client.Task, cmd command, stdin *endingReader,
) (client.Process, error) {
	spec, err := task.Spec(ctx)
	if err != nil {
		return nil, err
	}
	cmd.runAs(spec.Process)
	id := "exec-" + newID()[:16]
	started, err := task.Exec(ctx, id, spec.Process, r.execIO(c, id, cmd, stdin))
	return started, foreign(err)
}

// runAs makes the process of a container that of a command in it. With a terminal it has a TERM,
// also if the container has none.
func (cmd *command) runAs(process *specs.Process) {
	process.Args, process.Terminal = cmd.args, cmd.tty
	isTerm := func(e string) bool { return strings.HasPrefix(e, "TERM=") }
	if cmd.tty && !slices.ContainsFunc(process.Env, isTerm) {
		process.Env = append(process.Env, defaultTerm)
	}
}

// notStarted returns why a command was not started. If the call's deadline has passed and
// containerd answers nothing else, either, that says nothing about the command: the error is
// errdefs.IsUnavailable.
func (r *Runtime) notStarted(call context.Context, err error) error {
	if !errdefs.IsDeadlineExceeded(call.Err()) {
		return err
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(call), killTime)
	defer cancel()
	if _, silent := r.client.Version(asking); silent != nil {
		return classify.As(errdefs.ErrUnavailable, "the command was not started in time: "+silent.Error())
	}
	return err
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

// endExec removes a command. Unless it is known to be over, it is killed before, and endExec
// returns whether containerd has answered about that, for which it waits [killTime]. What is not
// done by then goes on without the caller.
func (r *Runtime) endExec(ctx context.Context, started client.Process, over bool) (answered bool) {
	answered = true
	if !over {
		killing, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
		err := started.Kill(killing, syscall.SIGKILL)
		cancel()
		// A command that does not run needs no kill.
		answered = err == nil || errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err)
	}
	removed := make(chan struct{})
	err := r.groups.Go(func() {
		defer close(removed)
		r.removeExec(started, over)
	})
	if err != nil || !answered {
		return answered // on an error the runtime is being closed, and its connection with it
	}
	select {
	case <-removed:
		return true
	case <-ctx.Done():
	}
	select {
	case <-removed:
	case <-time.After(killTime):
	}
	return true
}

// The first and the longest time between two tries to remove a command that was killed.
const (
	removeAgain  = 100 * time.Millisecond
	removeSeldom = 10 * time.Second
)

// removeExec removes a command. Unless that is known to be over, it kills the command and tries
// until it is gone, or until [Runtime.Close].
func (r *Runtime) removeExec(started client.Process, over bool) {
	for wait := removeAgain; ; wait = min(2*wait, removeSeldom) {
		if !over {
			_ = started.Kill(r.closing, syscall.SIGKILL) // Delete says what is wrong
		}
		_, err := started.Delete(r.closing, client.WithProcessKill)
		running := errdefs.IsFailedPrecondition(err) || errdefs.IsUnavailable(err)
		if !over && running && retry.Sleep(r.closing, wait) {
			continue
		}
		if err != nil && !errdefs.IsNotFound(err) && !errors.Is(err, context.Canceled) {
			r.cfg.Logger.Warn("a command in a container has ended, and containerd could not remove it", "command",
				started.ID(), "error", err)
		}
		return
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
