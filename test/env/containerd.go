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

	versionapi "github.com/containerd/containerd/api/services/version/v1"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// criNamespace is the containerd namespace that the CRI plugin uses.
const criNamespace = "k8s.io"

// errUnmanaged is the error of starting or stopping a containerd that the environment does not own.
var errUnmanaged = errors.New("this environment's containerd is not its own")

// Start starts containerd again after [Env.Kill9] or [Env.StopContainerd]. It waits until
// containerd and its network are ready.
func (e *Env) Start(ctx context.Context) error {
	if !e.private() {
		return errUnmanaged
	}
	// containerd finds its shim in PATH.
	path := "PATH=" + e.binaries.dir + string(os.PathListSeparator) + os.Getenv("PATH")
	// The context bounds the start, but not containerd's life.
	cmd := exec.CommandContext(context.Background(), filepath.Join(e.binaries.dir, "containerd"), "--config",
		e.config())
	cmd.Env = append(os.Environ(), path)
	cmd.Dir = e.Dir
	p, err := e.startProcess(cmd, e.log())
	if err != nil {
		return err
	}
	e.containerd = p
	return e.waitReady(ctx)
}

// Kill9 kills containerd and nothing else. Pods run on under their shims.
func (e *Env) Kill9() error {
	if !e.private() {
		return errUnmanaged
	}
	e.containerd.kill()
	return nil
}

// StopContainerd ends containerd with SIGTERM. Pods run on.
func (e *Env) StopContainerd() error {
	if !e.private() {
		return errUnmanaged
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

// GaveUpOn reports whether a starting containerd could not load a container within its ten seconds,
// as its log says. It then lists the container no more, and the agent starts another one. This
// happens on a machine that is short of cpu.
func (e *Env) GaveUpOn(containerID string) bool {
	_, id, _ := strings.Cut(containerID, "://")
	log, err := os.ReadFile(e.log())
	if err != nil || id == "" {
		return false
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "Failed to load container") && strings.Contains(line, id) {
			return true
		}
	}
	return false
}

// ContainerdPID returns containerd's process id, 0 for a containerd that the environment does not
// own.
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

// waitReady waits until the CRI answers and reports that runtime and network are ready, or in a
// native environment until containerd answers.
func (e *Env) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for pace := NewPace(); ; {
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
		case <-time.After(pace.Pause()):
		}
		// The client waits longer and longer between its attempts to connect; this ends the wait.
		e.conn.ResetConnectBackoff()
	}
}

func (e *Env) ready(ctx context.Context) error {
	if e.Native {
		_, err := versionapi.NewVersionClient(e.conn).Version(ctx, &emptypb.Empty{})
		return err
	}
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

// run runs a program. The program's output is in the error.
func run(ctx context.Context, name string, args ...string) error {
	var text bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err,
			bytes.TrimSpace(text.Bytes()))
	}
	return nil
}
