// Package streams serves and opens the streams of exec and attach for tests.
//
// Purpose: [Serve] is a runtime's streaming server over a runtime of the test's own; [Bridge] leads from a port to a unix socket, as clients of WebSockets know ports only;
// [WebSocket] opens a stream as kubectl does.
//
// Truth owned: none.
//
// Concurrency: all functions are safe for concurrent use.
package streams

import (
	"context"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/cri-streaming/pkg/streaming"
)

// Serve starts a streaming server whose commands are r's, until the test ends.
func Serve(t testing.TB, r streaming.Runtime) streaming.Server {
	t.Helper()
	ts := httptest.NewUnstartedServer(nil)
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: ts.Listener.Addr().String(), Path: "/"}
	s, err := streaming.NewServer(config, r)
	if err != nil {
		t.Fatal(err)
	}
	ts.Config.Handler = s
	ts.Start()
	t.Cleanup(func() {
		ts.CloseClientConnections()
		ts.Close()
	})
	return s
}

// Bridge carries connections from a loopback port to a unix socket until the test ends, and returns the port's URL.
func Bridge(t testing.TB, socket string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { join(t, in, socket) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return "http://" + l.Addr().String()
}

// join copies between a connection and a new one to the socket until one of them ends.
func join(t testing.TB, in net.Conn, socket string) {
	defer func() { _ = in.Close() }()
	out, err := (&net.Dialer{}).DialContext(context.Background(), "unix", socket) // a test's context has ended when its cleanups run, which streams may outlast
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = out.Close() }()
	var wg sync.WaitGroup
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		wg.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close()
			_ = pair[1].Close()
		})
	}
	wg.Wait()
}

// WebSocket opens the streams of a path, which may have a query, below a base URL by a WebSocket, and returns what they ended with. The protocol is v5 unless others are given.
func WebSocket(ctx context.Context, t testing.TB, base, path string, opts remotecommand.StreamOptions, protocols ...string) error {
	t.Helper()
	if len(protocols) == 0 {
		protocols = []string{"v5.channel.k8s.io"}
	}
	path, text, _ := strings.Cut(path, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	for name, on := range map[string]bool{"input": opts.Stdin != nil, "output": opts.Stdout != nil, "error": opts.Stderr != nil, "tty": opts.Tty} {
		if on {
			query.Set(name, "1")
		}
	}
	executor, err := remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{Host: base}, "GET", base+path+"?"+query.Encode(), protocols...)
	if err != nil {
		t.Fatal(err)
	}
	return executor.StreamWithContext(ctx, opts)
}

// WriterFunc is told of what is written.
type WriterFunc func([]byte)

// Write tells of p, and never fails.
func (f WriterFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}
