package fake

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// streamingServer is the address in the URLs of streams. Nobody listens there, as the fake has no
// streams.
const streamingServer = "http://127.0.0.1:1"

// ExecSync runs a command in a running container. A command that takes longer than timeout fails
// with class DeadlineExceeded.
func (r *Runtime) ExecSync(
	ctx context.Context, id string, cmd []string, timeout time.Duration,
) (*runtimeapi.ExecSyncResponse, error) {
	n := r.node
	request := &runtimeapi.ExecSyncRequest{
		ContainerId: id, Cmd: cmd, Timeout: int64((timeout + time.Second - 1) / time.Second),
	}
	return call(ctx, r, Call{Method: "ExecSync", ID: id, Request: request},
		func(ctx context.Context) (*runtimeapi.ExecSyncResponse, error) {
			n.mu.Lock()
			c, err := n.runningContainer(id)
			n.mu.Unlock()
			if err != nil {
				return nil, fmt.Errorf("failed to exec in container: %w", err)
			}
			answer := shellExec
			if c.behavior.Exec != nil {
				answer = c.behavior.Exec
			}
			result := answer(cmd)
			if result.Err != nil {
				return nil, fmt.Errorf("failed to exec in container: %w", result.Err)
			}
			if err := awaitExec(ctx, c, result.After, timeout); err != nil {
				return nil, err
			}
			return &runtimeapi.ExecSyncResponse{
				Stdout: []byte(result.Stdout), Stderr: []byte(result.Stderr), ExitCode: result.Code,
			}, nil
		})
}

// awaitExec waits as long as a command takes. The command ends with its container.
func awaitExec(ctx context.Context, c *container, takes, timeout time.Duration) error {
	wait := takes
	if timeout > 0 {
		wait = min(takes, timeout)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		if wait < takes {
			return fmt.Errorf("failed to exec in container: timeout %s exceeded: %w", timeout, context.DeadlineExceeded)
		}
		return nil
	case <-c.ended:
		return unknown(fmt.Sprintf("failed to exec in container: container %q is not running", c.id))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Exec returns a URL at which nobody listens.
func (r *Runtime) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (string, error) {
	return r.stream(ctx, Call{Method: "Exec", ID: req.GetContainerId(), Request: req}, "exec")
}

// Attach returns a URL at which nobody listens.
func (r *Runtime) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (string, error) {
	return r.stream(ctx, Call{Method: "Attach", ID: req.GetContainerId(), Request: req}, "attach")
}

func (r *Runtime) stream(ctx context.Context, about Call, kind string) (string, error) {
	n := r.node
	return call(ctx, r, about, func(context.Context) (string, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if _, err := n.runningContainer(about.ID); err != nil {
			return "", err
		}
		return n.url(kind), nil
	})
}

// PortForward returns a URL at which nobody listens.
func (r *Runtime) PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (string, error) {
	n := r.node
	id := req.GetPodSandboxId()
	return call(ctx, r, Call{Method: "PortForward", ID: id, Request: req}, func(context.Context) (string, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if s := n.sandboxes[id]; s == nil || !s.ready {
			return "", unknown(fmt.Sprintf("sandbox container %q is not running", id))
		}
		return n.url("portforward"), nil
	})
}

// url returns the URL of a new stream. The caller holds the lock.
func (n *node) url(kind string) string {
	token, _ := n.newID("stream")
	return streamingServer + "/" + kind + "/" + token[:8]
}

// runningContainer returns a container if it runs. The caller holds the lock.
func (n *node) runningContainer(id string) (*container, error) {
	c := n.containers[id]
	switch {
	case c == nil:
		return nil, noContainer(id)
	case !c.running():
		return nil, unknown(fmt.Sprintf("container is in %s state", c.state()))
	}
	return c, nil
}
