// Package streams connects to the streams of commands and containers. It is the client's side of
// exec and attach, over SPDY.
//
// Purpose: the code that the client of the agent shares with the agent as a client of its runtime.
// It adds what the library lacks: if the connection is lost before the other side has reported how
// the command ended, Run returns an error ([ErrLost]), not success.
//
// Truth owned: none. Concurrency: many goroutines may call [Run].
package streams

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	constants "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	transport "k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// ErrLost is the error of a command whose connection ended before the other side reported the
// command's end.
var ErrLost = errors.New("the connection was lost before the command had ended: how it ends is not known")

// pingPeriod is the time between pings, which keep idle streams from being closed.
const pingPeriod = 5 * time.Second

// DialFunc makes a connection, as [net.Dialer.DialContext] does.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// RoundTripper sends requests over connections of dial and upgrades them to SPDY.
func RoundTripper(dial DialFunc) (*spdy.SpdyRoundTripper, error) {
	rt, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{
		PingPeriod: pingPeriod, UpgradeTransport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing a stream: %w", err)
	}
	return rt, nil
}

// Run connects the streams at u to those of opts until the command or ctx ends. It follows no
// redirect. The error of a command with an exit code other than 0 is the library's CodeExitError,
// and that of a lost connection [ErrLost].
func Run(ctx context.Context, dial DialFunc, u *url.URL, opts remotecommand.StreamOptions) error {
	rt, err := RoundTripper(dial)
	if err != nil {
		return err
	}
	up := &upgrader{UpgradeRoundTripper: rt}
	executor, err := remotecommand.NewSPDYExecutorRejectRedirects(rt, transport.NewUpgraderForStreaming(up),
		http.MethodPost, u)
	if err != nil {
		return fmt.Errorf("preparing a stream: %w", err)
	}
	err = bound(ctx, func() error { return executor.StreamWithContext(ctx, opts) })
	if err == nil && up.silent() {
		return ErrLost
	}
	return err
}

// graceAfter is how long a stream may take to end by itself after its context has ended.
const graceAfter = time.Second

// bound runs a call of the library and returns when it returns, or when ctx ends. The library
// ignores ctx until the other side answers the upgrade request. In that case the call ends later,
// with the process's connection.
func bound(ctx context.Context, call func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		select {
		case err := <-ended: // the call may have noticed the end, and may have an exit code
			return err
		case <-time.After(graceAfter):
			return context.Cause(ctx)
		}
	}
}

// upgrader checks whether the other side reports how the command ended. Since protocol v4 it always
// does, on the error stream. The library takes an error stream without any content for success.
type upgrader struct {
	httpstream.UpgradeRoundTripper
	watched, reported atomic.Bool
}

// NewConnection returns the connection of an answer.
func (u *upgrader) NewConnection(resp *http.Response) (httpstream.Connection, error) {
	conn, err := u.UpgradeRoundTripper.NewConnection(resp)
	if err != nil {
		return nil, err
	}
	protocol := resp.Header.Get(httpstream.HeaderProtocolVersion)
	if strings.HasPrefix(protocol, constants.StreamProtocolV4Name) ||
		strings.HasPrefix(protocol, constants.StreamProtocolV5Name) {
		u.watched.Store(true)
	}
	return &connection{Connection: conn, upgrader: u}, nil
}

// silent reports whether the other side should have reported how the command ended, and has not.
func (u *upgrader) silent() bool { return u.watched.Load() && !u.reported.Load() }

type connection struct {
	httpstream.Connection
	upgrader *upgrader
}

// CreateStream makes a stream. It watches the error stream.
func (c *connection) CreateStream(headers http.Header) (httpstream.Stream, error) {
	stream, err := c.Connection.CreateStream(headers)
	if err != nil || headers.Get(v1.StreamType) != v1.StreamTypeError {
		return stream, err
	}
	return &errorStream{Stream: stream, upgrader: c.upgrader}, nil
}

type errorStream struct {
	httpstream.Stream
	upgrader *upgrader
}

// Read reads, and records that there was content.
func (s *errorStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if n > 0 {
		s.upgrader.reported.Store(true)
	}
	return n, err
}
