package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// criNamespace is the containerd namespace that the CRI plugin uses.
	criNamespace = "k8s.io"
	// pollInterval is how often something outside this process is looked at.
	pollInterval = 10 * time.Millisecond
)

// errForeign is what a containerd that is not ours answers to being started or stopped.
var errForeign = errors.New("this environment's containerd is not its own")

// Start starts containerd again after [Env.Kill9] or [Env.StopContainerd] and waits until it and its network are ready.
func (e *Env) Start(ctx context.Context) error {
	if !e.private() {
		return errForeign
	}
	// containerd looks for its shim in PATH.
	path := "PATH=" + e.binaries.dir + string(os.PathListSeparator) + os.Getenv("PATH")
	// The context bounds the start, not the life.
	cmd := exec.CommandContext(context.Background(), filepath.Join(e.binaries.dir, "containerd"), "--config", e.config())
	cmd.Env = append(os.Environ(), path)
	cmd.Dir = e.Dir
	p, err := e.startProcess(cmd, e.log())
	if err != nil {
		return err
	}
	e.containerd = p
	return e.waitReady(ctx)
}

// Kill9 kills containerd and nothing else: pods go on running under their shims.
func (e *Env) Kill9() error {
	if !e.private() {
		return errForeign
	}
	e.containerd.kill()
	return nil
}

// StopContainerd ends containerd with SIGTERM; pods go on running.
func (e *Env) StopContainerd() error {
	if !e.private() {
		return errForeign
	}
	return e.containerd.stop(stopTimeout)
}

// Restart stops containerd with SIGTERM and starts it again.
func (e *Env) Restart(ctx context.Context) error {
	if err := e.StopContainerd(); err != nil {
		return err
	}
	return e.Start(ctx)
}

// ContainerdPID returns containerd's process id, 0 for one that is not ours.
func (e *Env) ContainerdPID() int {
	if e.containerd == nil {
		return 0
	}
	return e.containerd.cmd.Process.Pid
}

// ShimPIDs returns the process ids of the shims.
func (e *Env) ShimPIDs() []int {
	var pids []int
	for _, p := range e.shims() {
		pids = append(pids, p.pid)
	}
	return pids
}

// waitReady returns when the CRI answers and says that runtime and network are ready.
func (e *Env) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		last := e.ready(ctx)
		if last == nil {
			return nil
		}
		if e.containerd != nil && e.containerd.ended() {
			return fmt.Errorf("wait for containerd: it ended (%w): %w", e.containerd.err, last)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for containerd: %w: %w", ctx.Err(), last)
		case <-time.After(pollInterval):
		}
		// A connection that was refused waits longer and longer before it is tried again.
		e.conn.ResetConnectBackoff()
	}
}

func (e *Env) ready(ctx context.Context) error {
	status, err := e.Runtime().Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return err
	}
	for _, c := range status.GetStatus().GetConditions() {
		if !c.Status && (c.Type == runtimeapi.RuntimeReady || c.Type == runtimeapi.NetworkReady) {
			return fmt.Errorf("%s is false: %s: %s", c.Type, c.Reason, c.Message)
		}
	}
	return nil
}

// address returns the endpoint as a path.
func (e *Env) address() string { return strings.TrimPrefix(e.Endpoint, "unix://") }

// run runs a program; its output goes into the error.
func run(ctx context.Context, name string, args ...string) error {
	var text bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, bytes.TrimSpace(text.Bytes()))
	}
	return nil
}
