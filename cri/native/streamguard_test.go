package native

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"
)

// Kinds of frames of SPDY without data (SPDY/3.1, section 2.6).
const (
	synStream = 1
	ping      = 6
	goAway    = 7
)

// control is a frame without data.
func control(kind byte, payload string) string {
	return "\x80\x03\x00" + string(kind) + "\x00\x00\x00" + string(byte(len(payload))) + payload
}

// Who takes a connection over reads it through the guard, what has come already, too.
func TestGuardedConnections(t *testing.T) {
	read := make(chan string, 1)
	address := serveStreams(t, guardStreams(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, both, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		first := make([]byte, 8)
		_, err = io.ReadFull(both.Reader, first)
		rest, after := io.ReadAll(c)
		read <- string(first) + string(rest) + errors.Join(err, after).Error()
	})).ServeHTTP)
	c := connectTo(t, address)
	want := control(ping, "")
	request := "GET /?streams=0 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
	if _, err := io.WriteString(c, request+want+control(synStream, "a")); err != nil {
		t.Fatal(err)
	}
	if got := <-read; got != want+"a client opens more streams of SPDY than it has asked for" {
		t.Errorf("%q was read, want %q and an error", got, want)
	}
}

// A client's end is noticed although the library reads no more: after an error, and after the frame
// with which clients end a connection.
func TestUnreadConnectionsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		sent   string
		leaves bool
	}{
		"a stream too many":  {control(synStream, "a"), false},
		"the end of clients": {control(goAway, "12345678"), true},
	} {
		ended := make(chan struct{})
		address := serveStreams(t, guardStreams(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, both, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if _, err := io.ReadFull(both.Reader, make([]byte, len(c.sent))); (err == nil) != c.leaves {
				t.Errorf("%s: %v", name, err)
			}
			<-r.Context().Done()
			close(ended)
		})).ServeHTTP)
		client := connectTo(t, address)
		request := "GET /?streams=0 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
		if _, err := io.WriteString(client, request+c.sent); err != nil {
			t.Fatal(err)
		}
		if c.leaves {
			_ = client.Close()
		}
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Errorf("%s: the stream lasts", name)
		}
	}
}

func TestWithStreams(t *testing.T) {
	if got := withStreams("http://x/exec/y", true, false, true); got != "http://x/exec/y?streams=3" {
		t.Error(got)
	}
}
