package streamguard

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// Guard returns the guard of a connection, which reads from it. The guard calls unread when nobody
// reads what it hands on any more.
type Guard func(from io.Reader, unread func()) io.Reader

// Writer returns a [http.Hijacker] that gives the one who takes the connection over a guarded one.
func Writer(w http.ResponseWriter, guard Guard) http.ResponseWriter { return &guardedWriter{w, guard} }

// guardedWriter is what [Writer] returns.
type guardedWriter struct {
	http.ResponseWriter
	guard Guard
}

// Unwrap is for http.ResponseController.
func (g *guardedWriter) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// Hijack implements [http.Hijacker].
func (g *guardedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, both, err := http.NewResponseController(g.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	// The client's end is found by reading, which ends its command or attachment.
	unread := func() {
		_ = conn.SetReadDeadline(time.Time{})
		go func() { _, _ = io.Copy(io.Discard, conn) }() // until the handler or the client closes it
	}
	reader := bufio.NewReader(&closing{g.guard(both.Reader, unread), conn})
	return &guardedConn{conn, reader}, bufio.NewReadWriter(reader, both.Writer), nil
}

// closing closes a connection when nothing more can be read: the libraries that read it only stop.
type closing struct {
	io.Reader
	conn net.Conn
}

// Read reads. After a deadline it may be called again.
func (c *closing) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, errGoneAway) {
		_ = c.conn.Close()
	}
	return n, err
}

// errGoneAway is read after the frame with which a client ends a connection: its output may go on.
var errGoneAway = errors.New("the client ends the connection")

// guardedConn is a connection of which everything is read through a guard.
type guardedConn struct {
	net.Conn
	reader *bufio.Reader
}

// Read reads through the guard.
func (c *guardedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }
