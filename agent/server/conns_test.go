package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/client/api"
)

// TestConnections has more callers than a listener has connections: the others get theirs when one
// ends, and the end of the listener waits for nobody.
func TestConnections(t *testing.T) {
	var config net.ListenConfig
	inner, err := config.Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	l := track(inner, 2)
	var served []net.Conn
	for i := range 3 {
		conn, err := net.Dial("unix", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i == 2 { // both places are taken
			served[0].Close()
			served[0].Close() // twice
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		served = append(served, c)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the end: %v", err)
	}
	l.closeAll()
	if len(l.slots) != 0 {
		t.Errorf("%d places are taken", len(l.slots))
	}
}

// TestRefusalsKeepNoConnection has a caller that only gets refusals: however many it gets, its
// connection is the first that has to make room.
func TestRefusalsKeepNoConnection(t *testing.T) {
	let := false
	seen := make(chan *trackedConn, 1)
	s := newAPI(t, guardFunc(func(w http.ResponseWriter, r *http.Request, _ string) bool {
		seen <- r.Context().Value(connKey{}).(*trackedConn)
		return let || refuses(w)
	}), everything)
	conn, err := net.Dial("tcp", serveAPI(t, s, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	ask := func(want int) *trackedConn {
		t.Helper()
		fmt.Fprint(conn, "GET /pods HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != want {
			t.Fatalf("%v %v", resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return <-seen
	}
	// The connection is not in use some time after the caller has the answer.
	idle := func(c *trackedConn) (since time.Time) {
		for used := true; used; runtime.Gosched() {
			c.from.mu.Lock()
			used, since = c.requests > 0, c.idle
			c.from.mu.Unlock()
		}
		return since
	}
	before := idle(ask(http.StatusUnauthorized))
	if c := ask(http.StatusUnauthorized); !idle(c).Equal(before) {
		t.Error("a refusal counts as use of the connection")
	}
	let = true
	if c := ask(http.StatusOK); !idle(c).After(before) {
		t.Error("an answer does not count as use of the connection")
	}
}

// TestConnectionsWithoutRequests has as many connections as a listener can have, which send
// nothing, or a header that does not end; one follows a log. A caller with a request takes the
// place of the oldest of them, and the one that follows stays.
func TestConnectionsWithoutRequests(t *testing.T) {
	r := start(t, &fixture{})
	conns := make([]net.Conn, maxConns)
	for i := range conns {
		conn, err := net.Dial("unix", r.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[i] = conn
		switch {
		case i == 0:
			fmt.Fprintf(conn, "GET %s?watch=true HTTP/1.1\r\nHost: x\r\n\r\n", api.PathPods)
			if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil { // it is answered
				t.Fatal(err)
			}
		case i%2 == 0:
			fmt.Fprintf(conn, "GET /pods HTTP/1.1\r\nHost: x\r\n")
		}
	}
	for range 3 {
		if code, text := r.ask(t, "GET", "/pods", nil); code != 200 {
			t.Errorf("beside %d connections: %d %q", maxConns, code, text)
		}
	}
	if _, err := conns[1].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the oldest connection without a request: %v", err)
	}
	r.setPods()
	lines := bufio.NewScanner(conns[0])
	for lines.Scan() && !strings.Contains(lines.Text(), api.Deleted) {
		continue
	}
	if !strings.Contains(lines.Text(), api.Deleted) {
		t.Errorf("the connection that follows has ended: %v", lines.Err())
	}
}

// TestConnectionInUse has the guard decide about a request on a connection that was idle for long:
// another caller does not take its place meanwhile. While a body is awaited, one does.
func TestConnectionInUse(t *testing.T) {
	deciding := make(chan *trackedConn)
	decided := make(chan struct{})
	s := newAPI(t, guardFunc(func(_ http.ResponseWriter, r *http.Request, _ string) bool {
		c := r.Context().Value(connKey{}).(*trackedConn)
		deciding <- c
		<-decided
		return true
	}), everything)
	s.bodyTimeout = time.Hour
	conn, err := net.Dial("tcp", serveAPI(t, s, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	displaced := func(c *trackedConn) bool {
		c.from.mu.Lock()
		c.idle = time.Now().Add(-time.Hour)
		c.from.mu.Unlock()
		c.from.displace()
		c.from.mu.Lock()
		defer c.from.mu.Unlock()
		_, has := c.from.conns[c]
		return !has
	}
	in := bufio.NewReader(conn)
	for range 2 {
		fmt.Fprint(conn, "GET /pods HTTP/1.1\r\nHost: x\r\n\r\n")
		if displaced(<-deciding) {
			t.Error("the connection of a request that is decided about was closed")
		}
		decided <- struct{}{}
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %v", resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	fmt.Fprint(conn, "POST /run/default/web-node/main?cmd=ls HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
	c := <-deciding
	decided <- struct{}{}
	for !displaced(c) {
		runtime.Gosched()
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection whose body is awaited: %v", err)
	}
}
