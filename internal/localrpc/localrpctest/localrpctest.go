// Package localrpctest runs services of package localrpc in tests.
//
// Truth owned: none. Concurrency: the service runs in a goroutine of its own until the test ends.
package localrpctest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Dir returns a directory for sockets that the test's end removes. Its path is short: that of a
// socket has at most 107 bytes (unix(7)).
func Dir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rpc") //nolint:usetesting // the test's own may have a long path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Serve runs a service until the test ends, and returns a connection to its socket. The test fails
// if the service ends with an error, or leaves something behind in the socket's directory.
func Serve(t *testing.T, run func(context.Context) error, socket string) *grpc.ClientConn {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	t.Cleanup(func() {
		if conn != nil {
			_ = conn.Close()
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if left, err := filepath.Glob(filepath.Dir(socket) + "/*"); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
