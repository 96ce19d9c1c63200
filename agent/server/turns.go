package server

import (
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// freshConns is how many connections of one caller are in their first request at the same time,
// and freshTime is how long one counts as such: who sends nothing does not hold up the others. As
// many as a listener has begin within the time for a header.
const (
	freshConns = 4
	freshTime  = 50 * time.Millisecond
)

// turns let the new connections of a caller begin a few at a time, so that a caller who makes many
// at once takes little time from one who makes few, as a command does. Callers wait only for
// themselves. It is safe for concurrent use.
type turns struct {
	mu      sync.Mutex
	callers map[string]*callerTurns
}

// callerTurns are the connections of one caller that are in their first request or wait for it.
type callerTurns struct {
	places chan struct{}
	conns  int
}

// take waits for a place of the caller, until gone is closed. The place is given back by done,
// which may be called again, and after [freshTime].
func (t *turns) take(who string, gone <-chan struct{}) (done func()) {
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
	select {
	case c.places <- struct{}{}:
	case <-gone:
		leave()
		return func() {}
	}
	giveBack := sync.OnceFunc(func() { <-c.places; leave() })
	late := time.AfterFunc(freshTime, giveBack)
	return func() { late.Stop(); giveBack() }
}

// callerOf names who has made a connection: the process at the other end of a unix connection, or
// the address of another one.
func callerOf(c net.Conn) string {
	u, ok := c.(*net.UnixConn)
	if !ok {
		address := c.RemoteAddr().String()
		if host, _, err := net.SplitHostPort(address); err == nil {
			return host
		}
		return address
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return ""
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || credErr != nil {
		return ""
	}
	if cred.Pid == 0 { // of another PID namespace
		return "user " + strconv.Itoa(int(cred.Uid))
	}
	return "process " + strconv.Itoa(int(cred.Pid))
}
