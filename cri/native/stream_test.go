package native

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// serveStreams serves a handler as the streams are served, and returns the address.
func serveStreams(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &streamServer{}
	s.serve(t.Context(), l, handler)
	t.Cleanup(s.stop)
	return l.Addr().String()
}

func connectTo(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// An upgraded connection whose client has left ends the context of its request: an attachment must
// not last until the container's end.
func TestStreamEndsWithItsClient(t *testing.T) {
	ended, began := make(chan struct{}), make(chan struct{})
	address := serveStreams(t, func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		close(began)
		if r.Context().Err() != nil {
			t.Error("it has ended before the client left")
		}
		go func() { _, _ = io.Copy(io.Discard, c) }() // as a library of streams reads
		select {
		case <-r.Context().Done():
			close(ended)
		case <-time.After(time.Minute):
		}
	})
	c := connectTo(t, address)
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-began
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the stream lasts without its client")
	}
}

// Connections that send nothing do not take all descriptors of the agent: the oldest ones go.
func TestWaitingConnectionsAreBounded(t *testing.T) {
	address := serveStreams(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	first := connectTo(t, address)
	for range maxWaiting {
		connectTo(t, address)
	}
	_ = first.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the oldest of %d connections: %v", maxWaiting+1, err)
	}
	last := connectTo(t, address)
	_ = last.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(last, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if n, err := last.Read(make([]byte, 64)); n == 0 {
		t.Errorf("a new connection is not answered: %v", err)
	}
}

// Commands outlast their clients up to a limit for each container. Those above it end, and those
// that have ended make room.
func TestCommandsWithoutClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left leftCommands
		var ended []context.CancelFunc
		leave := func(container string) context.Context {
			client, gone := context.WithCancel(t.Context())
			own, end := left.outlive(client, t.Context(), container)
			ended = append(ended, end)
			if gone(); own.Err() != nil {
				t.Error("it ended at once")
			}
			synctest.Wait()
			return own
		}
		for i := range maxLeft {
			if leave("a").Err() != nil {
				t.Errorf("command %d ended with its client", i)
			}
		}
		if leave("a").Err() == nil {
			t.Error("a command above the limit goes on")
		}
		if leave("b").Err() != nil {
			t.Error("the command of another container ended")
		}
		ended[0]()
		if leave("a").Err() != nil {
			t.Error("an ended command makes no room")
		}
		for _, end := range ended {
			end()
		}
		if len(left.counts) > 0 {
			t.Errorf("still counted: %v", left.counts)
		}
	})
}
