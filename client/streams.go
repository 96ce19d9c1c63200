package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	transport "k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"

	"github.com/berthd/berth/client/streams"
)

// Stdio has the local ends of the streams of a command or container. A nil end is not connected.
// With TTY there is no Stderr.
type Stdio struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	TTY            bool
	// Resize returns the terminal's sizes; nil if there is no terminal.
	Resize remotecommand.TerminalSizeQueue
}

// Target is a container of a pod.
type Target struct{ Namespace, Pod, Container string }

// ExitError is the error of a command that ran and ended with a code other than 0.
type ExitError struct{ Code int }

// Error returns a text with the code.
func (e *ExitError) Error() string {
	return fmt.Sprintf("command terminated with exit code %d", e.Code)
}

// Exec runs a command in a container and connects its streams, until the command or ctx ends. A
// code other than 0 is an [ExitError].
func (c *Client) Exec(ctx context.Context, t Target, command []string, io Stdio) error {
	query := io.query()
	query["command"] = command
	return c.stream(ctx, endpoint("/exec/"+t.Namespace+"/"+t.Pod+"/"+t.Container, query), io)
}

// Attach connects to the streams of a container's own process, until the process or ctx ends.
func (c *Client) Attach(ctx context.Context, t Target, io Stdio) error {
	return c.stream(ctx, endpoint("/attach/"+t.Namespace+"/"+t.Pod+"/"+t.Container, io.query()), io)
}

func (s Stdio) query() url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{
		"input":  s.Stdin != nil,
		"output": s.Stdout != nil,
		"error":  s.Stderr != nil && !s.TTY,
		"tty":    s.TTY,
	} {
		if on {
			q.Set(name, "1")
		}
	}
	return q
}

// reach checks that the agent is there, because the library loses the type of that error.
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

// streamError converts the library's error to the agent's own error.
func streamError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if text, ok := strings.CutPrefix(err.Error(), upgradePrefix); ok {
		// the agent's answer, whose code the library drops
		return &StatusError{Code: http.StatusBadRequest, Message: text}
	}
	return err
}

// upgradePrefix is what the SPDY library writes before the answer of a server that does not
// upgrade.
const upgradePrefix = "unable to upgrade connection: "

// Forward says which ports of a pod are forwarded from where.
type Forward struct {
	Namespace, Pod string
	// Addresses are the local addresses to listen on. Ports are LOCAL:REMOTE, :REMOTE (any free
	// local port) or PORT.
	Addresses, Ports []string
	// Out gets a line for each port and connection, Err gets errors.
	Out, Err io.Writer
}

// halfTaken returns the addresses of localhost on which another program listens already, where the
// other address family is free. The library would forward from the free one, as kubectl does, and
// say nothing.
func halfTaken(ctx context.Context, f Forward) []string {
	if !slices.Contains(f.Addresses, "localhost") {
		return nil
	}
	var out []string
	for _, spec := range f.Ports {
		local, _, _ := strings.Cut(spec, ":")
		if local == "" || local == "0" {
			continue
		}
		var taken []string
		for network, host := range map[string]string{"tcp4": "127.0.0.1", "tcp6": "::1"} {
			address := net.JoinHostPort(host, local)
			var config net.ListenConfig
			l, err := config.Listen(ctx, network, address)
			if err == nil {
				_ = l.Close()
			} else if errors.Is(err, unix.EADDRINUSE) {
				taken = append(taken, address)
			}
		}
		if len(taken) == 1 {
			out = append(out, taken[0])
		}
	}
	return out
}

// PortForward listens and forwards until ctx ends or the pod's connection is lost. It refuses a
// port of localhost that another program has in one address family.
func (c *Client) PortForward(ctx context.Context, f Forward) error {
	if err := c.reach(ctx); err != nil {
		return err
	}
	rt, err := streams.RoundTripper(c.dial)
	if err != nil {
		return err
	}
	u := endpoint("/portForward/"+f.Namespace+"/"+f.Pod, nil)
	if taken := halfTaken(ctx, f); len(taken) > 0 {
		return fmt.Errorf("%s is in use by another program, which clients of localhost may reach in place of the pod: "+
			"choose another local port, or one address of localhost (--address)", strings.Join(taken, ", "))
	}
	dialer := transport.NewDialer(transport.NewUpgraderForStreaming(rt), &http.Client{Transport: rt},
		http.MethodPost, u)
	forwarder, err := portforward.NewOnAddresses(dialer, f.Addresses, f.Ports, ctx.Done(), make(chan struct{}),
		f.Out, f.Err)
	if err != nil {
		return err
	}
	if err := forwarder.ForwardPorts(); err != nil {
		return streamError(err)
	}
	return nil
}
