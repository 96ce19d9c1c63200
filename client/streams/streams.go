// Package streams connects with the streams of commands and containers: the client's side of exec and attach, by SPDY.
//
// Purpose: what the client of the agent and the agent as a client of its runtime share. It adds to the library what that leaves out: a connection that
// is lost before the other side has said how the command ended is an error ([ErrLost]), not a success.
//
// Truth owned: none. Concurrency: [Run] may be called from many goroutines.
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

// ErrLost is the error of a command whose connection ended before it was said how the command did.
var ErrLost = errors.New("the connection was lost before the command had ended: how it ends is not known")

// pingPeriod keeps resting streams from being taken for dead.
const pingPeriod = 5 * time.Second

// DialFunc makes a connection, as [net.Dialer.DialContext] does.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// RoundTripper makes requests over connections of dial that become SPDY.
func RoundTripper(dial DialFunc) (*spdy.SpdyRoundTripper, error) {
	rt, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{
		PingPeriod: pingPeriod, UpgradeTransport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing a stream: %w", err)
	}
	return rt, nil
}

// Run connects the streams at u with those of opts until the command has ended or ctx has. No redirect is followed. A command that ended with a code other than 0
// gives the library's CodeExitError, and a lost connection [ErrLost].
func Run(ctx context.Context, dial DialFunc, u *url.URL, opts remotecommand.StreamOptions) error {
	rt, err := RoundTripper(dial)
	if err != nil {
		return err
	}
	up := &upgrader{UpgradeRoundTripper: rt}
	executor, err := remotecommand.NewSPDYExecutorRejectRedirects(rt, transport.NewUpgraderForStreaming(up), http.MethodPost, u)
	if err != nil {
		return fmt.Errorf("preparing a stream: %w", err)
	}
	err = bound(ctx, func() error { return executor.StreamWithContext(ctx, opts) })
	if err == nil && up.silent() {
		return ErrLost
	}
	return err
}

// graceAfter is how long a stream whose context has ended may take to end by itself.
const graceAfter = time.Second

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
		case <-time.After(graceAfter):
			return context.Cause(ctx)
		}
	}
}

// upgrader watches whether the other side says how the command ended. Since protocol v4 it always does, on the error stream; the library takes an error
// stream that ends without a word for success.
type upgrader struct {
	httpstream.UpgradeRoundTripper
	watched, told atomic.Bool
}

// NewConnection makes the connection of an answer.
func (u *upgrader) NewConnection(resp *http.Response) (httpstream.Connection, error) {
	conn, err := u.UpgradeRoundTripper.NewConnection(resp)
	if err != nil {
		return nil, err
	}
	protocol := resp.Header.Get(httpstream.HeaderProtocolVersion)
	if strings.HasPrefix(protocol, constants.StreamProtocolV4Name) || strings.HasPrefix(protocol, constants.StreamProtocolV5Name) {
		u.watched.Store(true)
	}
	return &connection{Connection: conn, upgrader: u}, nil
}

// silent reports whether the other side should have said how the command ended, and has not.
func (u *upgrader) silent() bool { return u.watched.Load() && !u.told.Load() }

type connection struct {
	httpstream.Connection
	upgrader *upgrader
}

// CreateStream makes a stream; the error stream is watched.
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

// Read reads, and notes that there was something.
func (s *errorStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if n > 0 {
		s.upgrader.told.Store(true)
	}
	return n, err
}
