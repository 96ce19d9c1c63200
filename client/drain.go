package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/client/api"
)

// Drained returns whether pods may run on the node.
func (c *Client) Drained(ctx context.Context) (*api.Drain, error) {
	return c.drain(ctx, http.MethodGet, nil)
}

// Drain starts to stop all pods of the node. [Client.Drained] returns the progress.
func (c *Client) Drain(ctx context.Context, req api.DrainRequest) (*api.Drain, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("asking the agent to drain: %w", err)
	}
	return c.drain(ctx, http.MethodPost, body)
}

// Undrain lets pods run again.
func (c *Client) Undrain(ctx context.Context) (*api.Drain, error) {
	return c.drain(ctx, http.MethodDelete, nil)
}

func (c *Client) drain(ctx context.Context, method string, body []byte) (*api.Drain, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	d := &api.Drain{}
	if err := c.send(ctx, method, endpoint(api.PathDrain, nil), body, d); err != nil {
		return nil, err
	}
	return d, nil
}

// send sends a request with a JSON body, and reads the JSON value in the answer.
func (c *Client) send(ctx context.Context, method string, u *url.URL, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("asking the agent for %s: %w", u.Path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.explain(u, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return statusError(resp)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("reading the agent's answer to %s: %w", u.Path, err)
	}
	return nil
}

// AgentPID returns the process id of the agent at the socket. The kernel reports it.
func (c *Client) AgentPID(ctx context.Context) (int, error) {
	conn, err := c.dial(ctx, "", "")
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	peer, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("asking who serves %s: it is no unix socket", c.socket)
	}
	raw, err := peer.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("asking who serves %s: %w", c.socket, err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, fmt.Errorf("asking who serves %s: %w", c.socket, err)
	}
	if credErr != nil {
		return 0, fmt.Errorf("asking who serves %s: %w", c.socket, credErr)
	}
	return int(cred.Pid), nil
}
