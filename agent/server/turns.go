package server

import (
	"net"
	"sync"
	"time"
)

// freshConns is how many connections of one caller are in their first request at the same time, and
// freshTime is how long one counts as such. As many as a listener has begin within the time for a
// header. turnWait is how long a connection to a port waits at most: there, many callers may have
// one address, and none of them may hold up the others. It is less than [idleBefore], so that no
// connection is displaced while it waits.
const (
	freshConns = 4
	freshTime  = 50 * time.Millisecond
	turnWait   = 250 * time.Millisecond
)

// turns let the new connections of a caller begin a few at a time, so that a caller who makes many
// at once takes little time from one who makes few, as a command does. A caller is a process at the
// socket, which waits only for itself, or an address at a port. It is safe for concurrent use.
type turns struct {
	mu      sync.Mutex
	callers map[caller]*callerTurns
}

// caller is the process that has made a connection to the socket, or the address from which one to
// a port was made. The zero caller is not known.
type caller struct {
	process int32
	address string
}

// callerTurns are the connections of one caller that are in their first request or wait for it.
type callerTurns struct {
	places chan struct{}
	conns  int
}

// take waits for a place of the caller, until gone is closed, and at a port for at most [turnWait].
// The place is given back by done, which may be called again, and after [freshTime].
func (t *turns) take(who caller, gone <-chan struct{}) (done func()) {
	t.mu.Lock()
	c := t.callers[who]
	if c == nil {
		c = &callerTurns{places: make(chan struct{}, freshConns)}
		t.callers[who] = c
	}
	c.conns++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if c.conns--; c.conns == 0 {
			delete(t.callers, who)
		}
	}
	var late <-chan time.Time
	if who.process == 0 {
		patience := time.NewTimer(turnWait)
		defer patience.Stop()
		late = patience.C
	}
	select {
	case c.places <- struct{}{}:
	case <-gone:
		leave()
		return func() {}
	case <-late:
		leave()
		return func() {}
	}
	giveBack := sync.OnceFunc(func() { <-c.places; leave() })
	over := time.AfterFunc(freshTime, giveBack)
	return func() { over.Stop(); giveBack() }
}

// callerOf returns who has made a connection: its peer, if there is one.
func callerOf(c net.Conn, p *peer) caller {
	if p != nil {
		return caller{process: p.pid}
	}
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	return caller{address: host}
}
