package probes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

// ExecFunc runs a command in a container. It returns the exit code and the output (stdout and
// stderr together). A command that ran and failed is no error. A command that did not end within
// timeout is an error for which errdefs.IsDeadlineExceeded is true. ExecFunc must return soon after
// ctx ends. containerID is the one of the [Target].
type ExecFunc func(ctx context.Context, containerID string, cmd []string,
	timeout time.Duration) (exitCode int, output []byte, err error)

// execMargin is how much longer than its timeout an exec may take before the agent stops waiting
// for the runtime. The runtime enforces the timeout itself, and needs a moment to kill the command
// and report that.
const execMargin = 2 * time.Second

// aliveTimeout is how long the runtime may take to answer another call.
const aliveTimeout = 2 * time.Second

// errTimedOut is the error of a command that did not end within its timeout.
var errTimedOut = errors.New("command timed out")

// execs runs exec probes, with limits on their number, time and output. If two probes of a
// container have the same command, it runs once for both.
type execs struct {
	run ExecFunc
	// alive returns nil if the runtime answers other calls now.
	alive func(context.Context) error
	// slots holds one token for each exec that may run at the same time.
	slots chan struct{}

	mu      sync.Mutex
	flights map[string]*flight
}

// flight is a running exec. Other probes with the same command may wait for it. Its result is set
// before done closes; err is errTimedOut if the command did not end within its timeout.
type flight struct {
	done   chan struct{}
	exit   int
	output []byte
	err    error
	// busy is how long the command ran.
	busy time.Duration
}

func newExecs(run ExecFunc, alive func(context.Context) error, parallel int) *execs {
	return &execs{run: run, alive: alive, slots: make(chan struct{}, parallel), flights: map[string]*flight{}}
}

// probe runs the probe's command. $(NAME) in the command stands for a variable of the container's
// environment whose value is in the spec itself.
func (e *execs) probe(ctx context.Context, t task, timeout time.Duration) (reply, error) {
	cmd := expandCommand(t.spec.Exec.Command, t.container.Env)
	f, mine := e.share(ctx, t.containerID, cmd, timeout, periodOf(t.spec))
	r := reply{outcome: unknown}
	if mine {
		r.busy = f.busy
	}
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case errors.Is(f.err, errTimedOut):
		r.outcome, r.text = failure,
			fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(cmd, " "), timeout)
		return r, nil
	case f.err != nil:
		return r, fmt.Errorf("run probe command in container %s: %w", t.container.Name, f.err)
	}
	r.outcome, r.text = success, string(f.output)
	if f.exit != 0 {
		r.outcome = failure
	}
	return r, nil
}

// share runs cmd, or waits for the same command that already runs in the same container with the
// same timeout. Liveness and readiness often have the same command, and each exec wakes the
// container's shim.
//
// It returns the flight, and whether the command ran for this call. If ctx ends first, the flight
// has the context's error.
func (e *execs) share(
	ctx context.Context, id string, cmd []string, timeout, patience time.Duration,
) (f *flight, mine bool) {
	key := id + "\x00" + timeout.String() + "\x00" + strings.Join(cmd, "\x00")
	e.mu.Lock()
	if f := e.flights[key]; f != nil {
		e.mu.Unlock()
		select {
		case <-ctx.Done():
			return &flight{err: ctx.Err()}, false
		case <-f.done:
			return f, false
		}
	}
	f = &flight{done: make(chan struct{})}
	e.flights[key] = f
	e.mu.Unlock()

	defer func() {
		e.mu.Lock()
		delete(e.flights, key)
		e.mu.Unlock()
		close(f.done)
	}()
	release, err := e.acquire(ctx, patience)
	if err != nil {
		f.err = err
		return f, true
	}
	defer release()
	began := time.Now()
	f.exit, f.output, f.err = e.once(ctx, id, cmd, timeout)
	f.output, f.busy = bytes.Clone(clip(f.output)), time.Since(began)
	return f, true
}

// once runs cmd. Its error is errTimedOut if the runtime reports that the command did not end in
// time, or if the runtime reports nothing about the command but answers other calls. If the runtime
// answers no call (frozen, overloaded, away), the error is about the probing.
func (e *execs) once(
	ctx context.Context, id string, cmd []string, timeout time.Duration,
) (exit int, output []byte, err error) {
	limited, cancel := context.WithTimeout(ctx, timeout+execMargin)
	defer cancel()
	exit, output, err = e.run(limited, id, cmd, timeout)
	switch {
	case err == nil || ctx.Err() != nil || !errdefs.IsDeadlineExceeded(err):
		return exit, output, err
	case limited.Err() == nil:
		return 0, nil, errTimedOut // the runtime reports this itself
	}
	asking, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	if err := e.alive(asking); err != nil {
		return 0, nil, fmt.Errorf("no answer within %s, and none of the runtime otherwise: %w", timeout+execMargin, err)
	}
	return 0, nil, errTimedOut
}

// acquire waits for a slot, at most for patience. So hanging commands of other probes can delay a
// probe, but cannot stop it for ever.
func (e *execs) acquire(ctx context.Context, patience time.Duration) (release func(), err error) {
	select {
	case e.slots <- struct{}{}:
		return func() { <-e.slots }, nil
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case e.slots <- struct{}{}:
		return func() { <-e.slots }, nil
	case <-timer.C:
		return func() {}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// clip returns at most the first maxOutput bytes.
func clip(b []byte) []byte {
	return b[:min(len(b), maxOutput)]
}
