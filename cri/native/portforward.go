package native

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// PortForward implements streaming.Runtime. It connects to the port on the sandbox's loopback.
func (s *streamRuntime) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	sb, err := s.store.sandbox(id)
	if err != nil {
		return err
	}
	conn, err := s.dial(ctx, sb, port)
	if err != nil {
		return fmt.Errorf("connect to port %d of sandbox %s: %w", port, id, err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var out sync.WaitGroup
	out.Go(func() {
		_, _ = io.Copy(stream, conn)
		_ = stream.Close()
	})
	_, _ = io.Copy(conn, stream)
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	out.Wait()
	return nil
}

// dial connects to a port, by IPv4 or else by IPv6.
func (s *streamRuntime) dial(ctx context.Context, sb *sandbox, port int32) (net.Conn, error) {
	connect := func() (net.Conn, error) {
		var dialer net.Dialer
		number := strconv.Itoa(int(port))
		conn, err := dialer.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", number))
		if err == nil {
			return conn, nil
		}
		if other, otherErr := dialer.DialContext(ctx, "tcp6", net.JoinHostPort("::1", number)); otherErr == nil {
			return other, nil
		}
		return nil, err
	}
	if sb.hostNetwork() {
		return connect()
	}
	return inNetns(s.netns(sb.id), connect)
}

// inNetns calls f in a network namespace. A socket stays in the namespace in which it was made.
func inNetns(path string, f func() (net.Conn, error)) (conn net.Conn, err error) {
	err = onThread(func() (err error) {
		if err = enterNamespace(path, unix.CLONE_NEWNET); err == nil {
			conn, err = f()
		}
		return err
	})
	return conn, err
}
