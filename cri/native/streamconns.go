package native

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
)

// maxWaiting is how many connections may be without a stream at the same time. Any process of the
// machine can connect, but only a token begins a stream.
const maxWaiting = 128

// streamListener bounds the connections without a stream. The context of a connection's request
// ends when its client leaves: net/http does not see that after an upgrade.
type streamListener struct {
	net.Listener

	mu sync.Mutex
	// waiting are the connections without a stream, the oldest first.
	waiting []*streamConn
}

// Accept waits for a connection. If there are too many without a stream, the oldest one is closed.
func (l *streamListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &streamConn{Conn: c, gone: func() {}}
	var oldest *streamConn
	l.mu.Lock()
	if l.waiting = append(l.waiting, conn); len(l.waiting) > maxWaiting {
		oldest = l.waiting[0]
		l.waiting = slices.Delete(l.waiting, 0, 1)
	}
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return conn, nil
}

// changed takes a connection off the list when it has a stream, or has ended
// ([http.Server.ConnState]).
func (l *streamListener) changed(c net.Conn, state http.ConnState) {
	if state != http.StateHijacked && state != http.StateClosed {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(w *streamConn) bool { return w == c })
}

// lasting returns the context of a connection's requests ([http.Server.ConnContext]).
func lasting(ctx context.Context, c net.Conn) context.Context {
	if conn, ok := c.(*streamConn); ok {
		ctx, conn.gone = context.WithCancel(ctx)
	}
	return ctx
}

// streamConn is a connection that says when its client has left.
type streamConn struct {
	net.Conn
	gone context.CancelFunc // set before the first Read
}

// Read reads. Every error but that of a deadline means that nothing comes any more.
func (c *streamConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.gone()
	}
	return n, err
}

// Close closes the connection. Nothing comes any more, although nobody may read that.
func (c *streamConn) Close() error {
	c.gone()
	return c.Conn.Close()
}

// maxLeft is how many commands of one container go on although their clients have left.
const maxLeft = 32

// leftCommands are the commands whose clients have left, by container.
type leftCommands struct {
	mu     sync.Mutex
	counts map[string]int
}

// outlive returns the context of a command of the client whose context is ctx. The command goes on
// without the client, as those of other runtimes do, unless its container has too many of that kind
// already. The caller calls ended when the command has ended.
func (l *leftCommands) outlive(
	ctx, life context.Context, container string,
) (own context.Context, ended context.CancelFunc) {
	own, cancel := context.WithCancel(life)
	left, over := false, false
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		switch {
		case over:
		case l.counts[container] >= maxLeft:
			cancel()
		default:
			if l.counts == nil {
				l.counts = map[string]int{}
			}
			l.counts[container]++
			left = true
		}
	})
	return own, func() {
		stop()
		cancel()
		l.mu.Lock()
		defer l.mu.Unlock()
		if over = true; left {
			left = false
			if l.counts[container]--; l.counts[container] == 0 {
				delete(l.counts, container)
			}
		}
	}
}
