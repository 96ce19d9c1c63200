package native

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/cri/internal/classify"
	"github.com/berthd/berth/internal/thread"
)

// maxForwarded is how many connections are forwarded into one sandbox at the same time, and
// maxForwardedAll into all: each takes descriptors and memory of the agent, and a client may open
// any number on one stream.
const (
	maxForwarded    = 256
	maxForwardedAll = 2048
)

// answerTime is how long a port may send nothing after the client has ended its input. The library
// does not say whether the client still waits for an answer or has left.
const answerTime = time.Minute

// PortForward implements streaming.Runtime. It connects to the port on the sandbox's loopback.
func (s *streamRuntime) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	sb, err := s.store.sandbox(id)
	if err != nil {
		return err
	}
	leave, err := s.stream.forwards.enter(id)
	if err != nil {
		return err
	}
	defer leave()
	conn, err := s.dial(ctx, sb, port)
	if err != nil {
		return fmt.Errorf("connect to port %d of sandbox %s: %w", port, id, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	forward(conn, stream, answerTime)
	return nil
}

// forward copies both ways between a port and a client, and closes the connection to the port. It
// returns when the port has closed its side, or has sent nothing for that long after the client's
// input has ended.
func forward(conn net.Conn, stream io.ReadWriteCloser, within time.Duration) {
	defer func() { _ = conn.Close() }()
	answer := &answering{Conn: conn, within: within}
	var out sync.WaitGroup
	out.Go(func() {
		_, _ = io.Copy(stream, answer)
		_ = stream.Close()
	})
	_, _ = io.Copy(conn, stream)
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	answer.end()
	out.Wait()
}

// answering is a connection whose reads must not take longer than within after end was called.
type answering struct {
	net.Conn
	within time.Duration
	ended  atomic.Bool
}

// Read reads.
func (a *answering) Read(p []byte) (int, error) {
	if a.ended.Load() {
		_ = a.SetReadDeadline(time.Now().Add(a.within))
	}
	return a.Conn.Read(p)
}

// end begins the time of this read and of the later ones.
func (a *answering) end() {
	a.ended.Store(true)
	_ = a.SetReadDeadline(time.Now().Add(a.within))
}

// forwards counts the forwarded connections, by sandbox.
type forwards struct {
	mu     sync.Mutex
	counts map[string]int
	all    int
}

// enter counts a connection until leave is called. The error says what there are too many of.
func (f *forwards) enter(sandbox string) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts[sandbox] >= maxForwarded || f.all >= maxForwardedAll {
		return nil, classify.As(errdefs.ErrResourceExhausted, fmt.Sprintf(
			"%d connections are forwarded into sandbox %s, and %d into all: try again later", f.counts[sandbox], sandbox,
			f.all))
	}
	if f.counts == nil {
		f.counts = map[string]int{}
	}
	f.counts[sandbox]++
	f.all++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.all--
		if f.counts[sandbox]--; f.counts[sandbox] == 0 {
			delete(f.counts, sandbox)
		}
	}, nil
}

// dial connects to a port, by IPv4 or else by IPv6.
func (s *streamRuntime) dial(ctx context.Context, sb *sandbox, port int32) (net.Conn, error) {
	var dialer net.Dialer
	if !sb.hostNetwork() {
		dialer.Control = func(network, _ string, c syscall.RawConn) error {
			return moveSocket(c, network, s.netns(sb.id))
		}
	}
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

// moveSocket puts a TCP socket of a network namespace in the place of a socket that is not
// connected yet. A socket stays in the namespace in which it was made: only this needs a thread
// there. A thread that connected there would wait as long as the port does not answer, and Go ends
// a program with too many threads.
func moveSocket(c syscall.RawConn, network, path string) error {
	family := unix.AF_INET
	if network == "tcp6" {
		family = unix.AF_INET6
	}
	made := -1
	err := thread.Own(func() (err error) {
		if err = enterNamespace(path, unix.CLONE_NEWNET); err == nil {
			made, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		}
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(made) }()
	var moved error
	if err := c.Control(func(fd uintptr) { moved = unix.Dup3(made, int(fd), unix.O_CLOEXEC) }); err != nil {
		return err
	}
	return moved
}
