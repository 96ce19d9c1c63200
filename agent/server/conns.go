package server

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// idleBefore is how long a connection may be without a request before a caller that finds no place
// takes its place, and displacePeriod is how often it looks for one.
const (
	idleBefore     = time.Second
	displacePeriod = 50 * time.Millisecond
)

// tracked is a listener that bounds and remembers its connections. The HTTP server does not close
// upgraded connections; tracked closes them, too.
type tracked struct {
	net.Listener
	// slots has an element for each connection. closed is closed with the listener.
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
	turns  turns

	mu    sync.Mutex
	conns map[*trackedConn]struct{}
}

// track returns a listener that has at most so many connections at the same time.
func track(l net.Listener, most int) *tracked {
	return &tracked{
		Listener: l, slots: make(chan struct{}, most), closed: make(chan struct{}), conns: map[*trackedConn]struct{}{},
		turns: turns{callers: map[caller]*callerTurns{}},
	}
}

// Accept waits for a connection, and then until there is a place for it. If there is none, the
// connection that has been without a request for the longest time is closed: callers that send
// nothing, or send slowly, do not keep others out.
func (t *tracked) Accept() (net.Conn, error) {
	c, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if !t.take() {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	conn := &trackedConn{Conn: c, from: t, peer: peerOf(c), idle: time.Now(), gone: make(chan struct{})}
	conn.who = callerOf(c, conn.peer)
	t.mu.Lock()
	t.conns[conn] = struct{}{}
	t.mu.Unlock()
	return conn, nil
}

// take takes a place for a connection. It returns false if the listener is closed.
func (t *tracked) take() bool {
	select {
	case t.slots <- struct{}{}:
		return true
	default:
	}
	look := time.NewTicker(displacePeriod)
	defer look.Stop()
	for {
		t.displace()
		select {
		case t.slots <- struct{}{}:
			return true
		case <-t.closed:
			return false
		case <-look.C:
		}
	}
}

// displace closes the connection that has been without a request for the longest time, if that is
// over [idleBefore].
func (t *tracked) displace() {
	var longest *trackedConn
	t.mu.Lock()
	for c := range t.conns {
		if c.requests == 0 && (longest == nil || c.idle.Before(longest.idle)) {
			longest = c
		}
	}
	late := longest != nil && time.Since(longest.idle) > idleBefore
	t.mu.Unlock()
	if late {
		_ = longest.Close()
	}
}

// Close ends Accept and closes the listener. The connections stay.
func (t *tracked) Close() error {
	t.once.Do(func() { close(t.closed) })
	return t.Listener.Close()
}

func (t *tracked) closeAll() {
	t.mu.Lock()
	conns := make([]*trackedConn, 0, len(t.conns))
	for c := range t.conns {
		conns = append(conns, c)
	}
	t.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// trackedConn is a connection of a tracked listener. peer is the process at the other end; nil at a
// port. who is the same for turns.
type trackedConn struct {
	net.Conn
	from *tracked
	peer *peer
	who  caller
	// began is for the first reading, after which the connection waits for its caller's turn. turn
	// ends the turn; nil before it and after it. gone is closed with the connection.
	began sync.Once
	turn  atomic.Pointer[func()]
	gone  chan struct{}
	// asked is true from the first request on.
	asked atomic.Bool

	// The listener's lock guards requests, which is how many requests of the connection are
	// answered, and idle, when an endpoint has answered the last one.
	requests int
	idle     time.Time
}

// Read reads what the caller sends. After the first reading, it waits for the caller's turn: who
// sends nothing takes none.
func (c *trackedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil {
		c.began.Do(c.begins)
	}
	return n, err
}

// begins waits for the caller's turn, if the caller is known.
func (c *trackedConn) begins() {
	if c.who == (caller{}) {
		return
	}
	done := c.from.turns.take(c.who, c.gone)
	c.turn.Store(&done)
	select {
	case <-c.gone: // Close did not see it
		c.endTurn()
	default:
	}
}

// Write sends to the caller. The first answer ends the caller's turn.
func (c *trackedConn) Write(p []byte) (int, error) {
	if c.asked.Load() {
		c.endTurn()
	}
	return c.Conn.Write(p)
}

// endTurn lets the caller's next connection begin.
func (c *trackedConn) endTurn() {
	if done := c.turn.Swap(nil); done != nil {
		(*done)()
	}
}

// Close closes the connection and removes it from the listener's list.
func (c *trackedConn) Close() error {
	c.from.mu.Lock()
	_, open := c.from.conns[c]
	delete(c.from.conns, c)
	c.from.mu.Unlock()
	if open {
		<-c.from.slots
		close(c.gone)
	}
	c.endTurn()
	return c.Conn.Close()
}

// connKey is the key of a request's connection in a context.
type connKey struct{}

// begin marks the connection as one in use by a request, and end ends that.
func (c *trackedConn) begin() {
	c.from.mu.Lock()
	defer c.from.mu.Unlock()
	c.requests++
}

func (c *trackedConn) end() {
	c.from.mu.Lock()
	defer c.from.mu.Unlock()
	c.requests--
}

// used marks the connection of a request as one in use, until end is called.
func used(ctx context.Context) (end func()) {
	if c, ok := ctx.Value(connKey{}).(*trackedConn); ok {
		c.begin()
		return c.end
	}
	return func() {}
}

// unused marks the connection of a request as one that its request does not use, until again is
// called.
func unused(ctx context.Context) (again func()) {
	if c, ok := ctx.Value(connKey{}).(*trackedConn); ok {
		c.end()
		return c.begin
	}
	return func() {}
}

// served notes that an endpoint has answered on the connection of a request. Refusals do not count:
// who only gets those could keep a place for ever with one request a second.
func served(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*trackedConn); ok {
		c.from.mu.Lock()
		defer c.from.mu.Unlock()
		c.idle = time.Now()
	}
}

// isFirst reports whether a request is the first one of its connection that has arrived.
func isFirst(ctx context.Context) bool {
	c, ok := ctx.Value(connKey{}).(*trackedConn)
	return ok && !c.asked.Swap(true)
}

// endTurn ends the turn of a request's connection, because the request is answered.
func endTurn(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*trackedConn); ok {
		c.endTurn()
	}
}
