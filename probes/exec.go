package probes

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

// ExecFunc runs a command in a container and returns its exit code and its output, stdout and stderr together. A command that
// ran and failed is no error. A command that did not end within timeout is an error for which errdefs.IsDeadlineExceeded holds.
// It must return soon after ctx ends. containerID is the one of the [Target].
type ExecFunc func(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (exitCode int, output []byte, err error)

// execMargin is how much longer than its timeout an exec may take before the agent gives up on the runtime. The runtime keeps
// the timeout itself and needs a moment to kill the command and say so.
const execMargin = 2 * time.Second

// execs runs exec probes: bounded in number, in time and in output, and once where two probes of a container ask the same.
type execs struct {
	run ExecFunc
	// slots holds one token for each exec that may be under way.
	slots chan struct{}

	mu      sync.Mutex
	flights map[string]*flight
}

// flight is an exec under way that others with the same command may wait for. exit, output and err are set before done closes.
type flight struct {
	done   chan struct{}
	exit   int
	output []byte
	err    error
}

func newExecs(run ExecFunc, parallel int) *execs {
	return &execs{run: run, slots: make(chan struct{}, parallel), flights: map[string]*flight{}}
}

// probe runs the probe's command, in which $(NAME) stands for the container's environment as far as the spec spells it out.
func (e *execs) probe(ctx context.Context, t task, timeout time.Duration) (reply, error) {
	cmd := expandCommand(t.spec.Exec.Command, t.container.Env)
	exit, output, err := e.share(ctx, t.containerID, cmd, timeout, periodOf(t.spec))
	switch {
	case ctx.Err() != nil:
		return reply{outcome: unknown}, ctx.Err()
	case errdefs.IsDeadlineExceeded(err):
		return reply{failure, fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(cmd, " "), timeout)}, nil
	case err != nil:
		return reply{outcome: unknown}, fmt.Errorf("run probe command in container %s: %w", t.container.Name, err)
	}
	text := string(clip(output))
	if exit != 0 {
		return reply{failure, text}, nil
	}
	return reply{success, text}, nil
}

// share runs cmd, or waits for the same command already under way in the same container with the same timeout: liveness and
// readiness are often the same command, and each exec wakes the container's shim.
func (e *execs) share(ctx context.Context, id string, cmd []string, timeout, patience time.Duration) (int, []byte, error) {
	key := id + "\x00" + timeout.String() + "\x00" + strings.Join(cmd, "\x00")
	e.mu.Lock()
	if f := e.flights[key]; f != nil {
		e.mu.Unlock()
		select {
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		case <-f.done:
			return f.exit, f.output, f.err
		}
	}
	f := &flight{done: make(chan struct{})}
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
		return 0, nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, timeout+execMargin)
	defer cancel()
	f.exit, f.output, f.err = e.run(ctx, id, cmd, timeout)
	return f.exit, f.output, f.err
}

// acquire waits for a slot, but no longer than patience: commands that hang elsewhere may delay a probe, not starve it.
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
