package server

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurns has a caller make many connections: as many as may begin do, and each that is done with
// its first request, or takes too long for it, lets another begin. Other callers wait for none of
// them.
func TestTurns(t *testing.T) {
	if last := maxConns / freshConns * freshTime; last >= headerTimeout {
		t.Errorf("the last connection begins after %v, and has %v for its header", last, headerTimeout)
	}
	synctest.Test(t, func(t *testing.T) {
		turns := turns{callers: map[caller]*callerTurns{}}
		gone := make(chan struct{})
		began := make(chan func(), 3*freshConns)
		var left atomic.Int64
		for range 3 * freshConns {
			go func() {
				done := turns.take(caller{process: 1}, gone)
				left.Add(1)
				began <- done
			}()
		}
		expect := func(want int64) {
			t.Helper()
			synctest.Wait()
			if got := left.Load(); got != want {
				t.Fatalf("%d connections have begun, not %d", got, want)
			}
		}
		expect(freshConns)
		turns.take(caller{process: 2}, gone)()
		done := <-began
		done()
		done() // twice
		expect(freshConns + 1)
		time.Sleep(freshTime)
		expect(2*freshConns + 1)
		close(gone)
		expect(3 * freshConns)
		time.Sleep(freshTime)
		for range 3*freshConns - 1 {
			(<-began)()
		}
		if len(turns.callers) > 0 {
			t.Errorf("%d callers are remembered", len(turns.callers))
		}
	})
}

// TestTurnsAtAPort has many callers with one address: none of them waits for long.
func TestTurnsAtAPort(t *testing.T) {
	if turnWait >= idleBefore {
		t.Errorf("a connection waits for %v, and is displaced after %v", turnWait, idleBefore)
	}
	synctest.Test(t, func(t *testing.T) {
		turns := turns{callers: map[caller]*callerTurns{}}
		began := time.Now()
		var all sync.WaitGroup
		for range maxConns {
			all.Go(func() { turns.take(caller{address: "192.0.2.1"}, nil) })
		}
		all.Wait()
		if took := time.Since(began); took != turnWait {
			t.Errorf("the last one waited for %v, not %v", took, turnWait)
		}
		time.Sleep(freshTime)
		synctest.Wait()
		if len(turns.callers) > 0 {
			t.Errorf("%d callers are remembered", len(turns.callers))
		}
	})
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	conns chan net.Conn
}

func (p pipes) Accept() (net.Conn, error) { return <-p.conns, nil }
func (p pipes) Close() error              { return nil }
func (p pipes) Addr() net.Addr            { return &net.UnixAddr{} }

// TestConnectionsTakeTurns reads from many connections of one caller: those whose turn it is not
// are not read from before an answer begins, or a connection ends.
func TestConnectionsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const conns = freshConns + 2
		inner := pipes{make(chan net.Conn, conns)}
		l := track(inner, conns)
		var served []*trackedConn
		var read atomic.Int64
		for i := range conns {
			ours, theirs := net.Pipe()
			defer theirs.Close()
			inner.conns <- ours
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			c.(*trackedConn).who = caller{process: 1}
			served = append(served, c.(*trackedConn))
			go func() { _, _ = theirs.Write([]byte("request")) }()
			go func() {
				if _, err := c.Read(make([]byte, 7)); err == nil {
					read.Add(1)
				}
			}()
			synctest.Wait()
			if got, want := read.Load(), int64(min(i+1, freshConns)); got != want {
				t.Fatalf("%d connections are read from, not %d", got, want)
			}
			if i == 0 {
				go func() { _, _ = theirs.Read(make([]byte, 8)) }()
			}
		}
		if _, err := served[0].Write([]byte("hello")); err != nil { // as in the handshake of TLS
			t.Fatal(err)
		}
		synctest.Wait()
		if got := read.Load(); got != freshConns {
			t.Errorf("%d connections are read from after a handshake", got)
		}
		endTurn(context.WithValue(t.Context(), connKey{}, served[1]))
		synctest.Wait()
		if got := read.Load(); got != freshConns+1 {
			t.Errorf("%d connections are read from after the end of a request", got)
		}
		_ = served[conns-1].Close() // one that waits
		_ = served[2].Close()       // one whose turn it is
		for _, c := range served {
			_ = c.Close()
		}
		synctest.Wait()
		if len(l.turns.callers) > 0 {
			t.Errorf("%d callers are remembered", len(l.turns.callers))
		}
	})
}

// TestCallers knows the processes at the socket, and the addresses at a port.
func TestCallers(t *testing.T) {
	for network, address := range map[string]string{"unix": filepath.Join(t.TempDir(), "s"), "tcp": "127.0.0.1:0"} {
		var config net.ListenConfig
		l, err := config.Listen(t.Context(), network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		want := map[string]caller{"unix": {process: int32(os.Getpid())}, "tcp": {address: "127.0.0.1"}}[network]
		if got := callerOf(c, peerOf(c)); got != want {
			t.Errorf("%s: %v, not %v", network, got, want)
		}
	}
}
