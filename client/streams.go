package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	transport "k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"

	"github.com/berthd/berth/client/streams"
)

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

// reach looks whether the agent is there: the library loses the type of that error.
func (c *Client) reach(ctx context.Context) error {
	conn, err := c.dial(ctx, "", "")
	if err != nil {
		return err
	}
	return conn.Close()
}

func (c *Client) stream(ctx context.Context, u *url.URL, io Stdio) error {
	if err := c.reach(ctx); err != nil {
		return err
	}
	opts := remotecommand.StreamOptions{Stdin: io.Stdin, Stdout: io.Stdout, Tty: io.TTY, TerminalSizeQueue: io.Resize}
	if !io.TTY {
		opts.Stderr = io.Stderr
	}
	err := streams.Run(ctx, c.dial, u, opts)
	var code exec.CodeExitError
	if errors.As(err, &code) {
		return &ExitError{Code: code.Code}
	}
	return streamError(err)
}

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
	if err := c.reach(ctx); err != nil {
		return err
	}
	rt, err := streams.RoundTripper(c.dial)
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
