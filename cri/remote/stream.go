package remote

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// execSlack is how much longer than the command's timeout an ExecSync call may take. It is short on
// purpose: containerd kills the command in time, but then waits without limit until every process
// that the command left behind has closed its output.
const execSlack = 5 * time.Second

// ExecSync runs a command in the container and returns its output and exit code. The runtime kills
// the command after timeout (whole seconds, rounded up). The error is then
// errdefs.IsDeadlineExceeded, at the latest [execSlack] later. Timeout 0 means none, and then the
// call has no deadline either.
func (r *Runtime) ExecSync(
	ctx context.Context, id string, cmd []string, timeout time.Duration,
) (*runtimeapi.ExecSyncResponse, error) {
	deadline := noDeadline
	if timeout > 0 {
		deadline = time.Duration(seconds(timeout))*time.Second + execSlack
	}
	return call(ctx, r, "exec_sync", deadline, r.runtime.ExecSync,
		&runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: seconds(timeout)})
}

// Exec prepares a command's stream and returns its URL.
func (r *Runtime) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (string, error) {
	resp, err := call(ctx, r, "exec", r.cfg.RequestTimeout, r.runtime.Exec, req)
	return streamURL("exec", resp.GetUrl(), err)
}

// Attach prepares a stream to a container's main process and returns its URL.
func (r *Runtime) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (string, error) {
	resp, err := call(ctx, r, "attach", r.cfg.RequestTimeout, r.runtime.Attach, req)
	return streamURL("attach", resp.GetUrl(), err)
}

// PortForward prepares a stream to a sandbox's ports and returns its URL.
func (r *Runtime) PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (string, error) {
	resp, err := call(ctx, r, "port_forward", r.cfg.RequestTimeout, r.runtime.PortForward, req)
	return streamURL("port forward", resp.GetUrl(), err)
}

// streamURL refuses an answer without a URL.
func streamURL(what, url string, err error) (string, error) {
	if err == nil && url == "" {
		err = fmt.Errorf("%s: %w", what, errNoAnswer)
	}
	return url, err
}
