package server

import (
	"context"
	"net"
	"time"
)

// closeIdle returns a dialer that closes a connection if nothing was read or written for the time
// idle (streamingConnectionIdleTimeout). 0 closes no connection.
func closeIdle(dial dialFunc, idle time.Duration) dialFunc {
	if idle <= 0 {
		return dial
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &idleConn{Conn: conn, idle: idle, end: time.AfterFunc(idle, func() { _ = conn.Close() })}, nil
	}
}

// idleConn is a connection that is closed when it is idle.
type idleConn struct {
	net.Conn
	idle time.Duration
	end  *time.Timer
}

// Read reads and counts as use.
func (c *idleConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.used(n)
	return n, err
}

// Write writes and counts as use.
func (c *idleConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.used(n)
	return n, err
}

// used starts the idle time again. A connection that was closed stays closed.
func (c *idleConn) used(n int) {
	if n > 0 && c.end.Stop() {
		c.end.Reset(c.idle)
	}
}

// Close ends the connection.
func (c *idleConn) Close() error {
	c.end.Stop()
	return c.Conn.Close()
}
