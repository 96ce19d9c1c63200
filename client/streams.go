package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	transport "k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// pingPeriod keeps resting streams from being taken for dead.
const pingPeriod = 5 * time.Second

// Stdio are the local ends of a command's or container's streams. A nil end is not connected. With TTY there is no Stderr.
type Stdio struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	TTY            bool
	// Resize gives the terminal's sizes; nil where there is none.
	Resize remotecommand.TerminalSizeQueue
}

// Target is a container of a pod.
type Target struct{ Namespace, Pod, Container string }

// ExitError is the error of a command that ran and ended with a code other than 0.
type ExitError struct{ Code int }

// Error names the code.
func (e *ExitError) Error() string {
	return fmt.Sprintf("command terminated with exit code %d", e.Code)
}

// Exec runs a command in a container and connects its streams, until it ends or ctx does. A code other than 0 is an [ExitError].
func (c *Client) Exec(ctx context.Context, t Target, command []string, io Stdio) error {
	query := io.query()
	query["command"] = command
	return c.stream(ctx, endpoint("/exec/"+t.Namespace+"/"+t.Pod+"/"+t.Container, query), io)
}

// Attach connects with the streams of a container's own process, until that ends or ctx does.
func (c *Client) Attach(ctx context.Context, t Target, io Stdio) error {
	return c.stream(ctx, endpoint("/attach/"+t.Namespace+"/"+t.Pod+"/"+t.Container, io.query()), io)
}

func (s Stdio) query() url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{"input": s.Stdin != nil, "output": s.Stdout != nil, "error": s.Stderr != nil && !s.TTY, "tty": s.TTY} {
		if on {
			q.Set(name, "1")
		}
	}
	return q
}

// upgrader makes connections to the agent's socket that become SPDY. It looks first whether the agent is there: the library loses the type of that error.
func (c *Client) upgrader(ctx context.Context) (*spdy.SpdyRoundTripper, error) {
	conn, err := c.dial(ctx, "", "")
	if err != nil {
		return nil, err
	}
	_ = conn.Close()
	rt, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{
		PingPeriod: pingPeriod, UpgradeTransport: &http.Transport{DialContext: c.dial},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing a stream: %w", err)
	}
	return rt, nil
}

func (c *Client) stream(ctx context.Context, u *url.URL, io Stdio) error {
	rt, err := c.upgrader(ctx)
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewSPDYExecutorRejectRedirects(rt, transport.NewUpgraderForStreaming(rt), http.MethodPost, u)
	if err != nil {
		return fmt.Errorf("preparing a stream: %w", err)
	}
	opts := remotecommand.StreamOptions{Stdin: io.Stdin, Stdout: io.Stdout, Tty: io.TTY, TerminalSizeQueue: io.Resize}
	if !io.TTY {
		opts.Stderr = io.Stderr
	}
	err = bound(ctx, func() error { return executor.StreamWithContext(ctx, opts) })
	var code exec.CodeExitError
	if errors.As(err, &code) {
		return &ExitError{Code: code.Code}
	}
	return streamError(err)
}

// bound runs a call of the library and returns when it does, or when ctx ends: while the other side does not answer the request to upgrade, the library
// does not look at ctx. The call ends then with the process's connection.
func bound(ctx context.Context, call func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		select {
		case err := <-ended: // it may have noticed, and have an exit code to tell
			return err
		case <-time.After(upgradeGrace):
			return context.Cause(ctx)
		}
	}
}

// upgradeGrace is how long a stream whose context has ended may take to end by itself.
const upgradeGrace = time.Second

// streamError makes the agent's own error of what the library says.
func streamError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if text, ok := strings.CutPrefix(err.Error(), upgradePrefix); ok {
		return &StatusError{Code: http.StatusBadRequest, Message: text} // the agent's answer, whose code the library drops
	}
	return err
}

// upgradePrefix is what the SPDY library puts before what a server answers instead of upgrading.
const upgradePrefix = "unable to upgrade connection: "

// Forward is what of a pod's ports is to be reached from where.
type Forward struct {
	Namespace, Pod string
	// Addresses are local addresses to listen on, and Ports are LOCAL:REMOTE, :REMOTE (any free local port) or PORT.
	Addresses, Ports []string
	// Out gets a line for each port and connection, Err what goes wrong.
	Out, Err io.Writer
}

// PortForward listens and forwards until ctx ends or the pod's connection is lost.
func (c *Client) PortForward(ctx context.Context, f Forward) error {
	rt, err := c.upgrader(ctx)
	if err != nil {
		return err
	}
	u := endpoint("/portForward/"+f.Namespace+"/"+f.Pod, nil)
	dialer := transport.NewDialer(transport.NewUpgraderForStreaming(rt), &http.Client{Transport: rt}, http.MethodPost, u)
	forwarder, err := portforward.NewOnAddresses(dialer, f.Addresses, f.Ports, ctx.Done(), make(chan struct{}), f.Out, f.Err)
	if err != nil {
		return err
	}
	if err := forwarder.ForwardPorts(); err != nil {
		return streamError(err)
	}
	return nil
}
