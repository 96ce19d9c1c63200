// Package streams serves and opens the streams of exec and attach for tests.
//
// Purpose: [Serve] is a runtime's streaming server for a runtime of the test's own. [Bridge] leads
// from a port to a unix socket, because clients of WebSockets can only connect to ports.
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

// Serve starts a streaming server that runs r's commands, until the test ends.
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

// Bridge carries connections from a loopback port to a unix socket until the test ends. It returns
// the port's URL.
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

// join copies between a connection and a new connection to the socket until one of them ends.
func join(t testing.TB, in net.Conn, socket string) {
	defer func() { _ = in.Close() }()
	// The context of a test ends before its cleanups run, but streams may live longer.
	out, err := (&net.Dialer{}).DialContext(context.Background(), "unix", socket)
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

// WebSocket opens the streams of a path below a base URL by a WebSocket, and returns the error with
// which they ended. The path may have a query. The protocol is v5 unless others are given.
func WebSocket(
	ctx context.Context, t testing.TB, base, path string, opts remotecommand.StreamOptions, protocols ...string,
) error {
	t.Helper()
	if len(protocols) == 0 {
		protocols = []string{"v5.channel.k8s.io"}
	}
	path, text, _ := strings.Cut(path, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	for name, on := range map[string]bool{
		"input": opts.Stdin != nil, "output": opts.Stdout != nil, "error": opts.Stderr != nil, "tty": opts.Tty,
	} {
		if on {
			query.Set(name, "1")
		}
	}
	executor, err := remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{Host: base}, "GET",
		base+path+"?"+query.Encode(), protocols...)
	if err != nil {
		t.Fatal(err)
	}
	return executor.StreamWithContext(ctx, opts)
}

// WriterFunc is a writer that calls the function with what is written.
type WriterFunc func([]byte)

// Write calls the function with p. It never fails.
func (f WriterFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}
