// Package localrpc serves gRPC services of a kubelet on sockets to which only root can connect.
//
// Purpose: a service on such a socket is there as long as the agent runs. While its socket cannot
// be made, that is tried again.
//
// [Listen] makes such a socket for other services, and [Free] looks who is in its place.
//
// Truth owned: none. Concurrency: a [Server] serves any number of requests at a time, but begins no
// more of them in a second than a kubelet.
package localrpc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berthd/berth/internal/retry"
)

// The most requests in a second, and at once. Both are the kubelet's.
const (
	perSecond = 100
	atOnce    = 10
)

// listening is how long a server waits after it could not make its socket.
var listening = retry.Backoff{First: time.Second, Most: time.Minute}

// Server is one service on one socket.
type Server struct {
	// Service names the service in messages.
	Service string
	// Dir is the directory of the socket, and Name the socket's name in it. A directory that does not
	// exist is made.
	Dir, Name string
	// Register registers the service.
	Register func(*grpc.Server)
	Logger   *slog.Logger
}

// Run serves until ctx ends. While the socket cannot be made, it tries again.
func (s *Server) Run(ctx context.Context) error {
	for failures := 1; ctx.Err() == nil; failures++ {
		if err := s.serve(ctx); ctx.Err() == nil {
			s.Logger.Error("nobody can ask the "+s.Service+"; this is tried again", "dir", s.Dir,
				"in", listening.Delay(failures), "err", err)
			listening.Wait(ctx, failures)
		}
	}
	return nil
}

func (s *Server) serve(ctx context.Context) error {
	if err := os.MkdirAll(s.Dir, 0o750); err != nil {
		return fmt.Errorf("making the directory of the %s: %w", s.Service, err)
	}
	path := filepath.Join(s.Dir, s.Name)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("removing the socket of an earlier run: %w", err)
	}
	listener, err := Listen(path)
	if err != nil {
		return fmt.Errorf("listening for the %s: %w", s.Service, err)
	}
	defer func() { _ = os.Remove(path) }() // the next run removes it, too
	limit := rate.NewLimiter(perSecond, atOnce)
	server := grpc.NewServer(grpc.UnaryInterceptor(limited(limit)), grpc.StreamInterceptor(limitedStream(limit)))
	s.Register(server)
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(listener); err != nil {
		return fmt.Errorf("serving the %s: %w", s.Service, err)
	}
	return nil
}

// Listen makes a socket that only root can connect to. It has its mode before anybody can see it
// under its name, and takes the place of a socket of that name. Nobody removes it.
func Listen(path string) (net.Listener, error) {
	// a path may be as long as a socket's path can be, so the hidden name goes through a descriptor
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	name := "." + filepath.Base(path) + ".new"
	hidden := filepath.Join(filepath.Dir(path), name)
	if err := os.Remove(hidden); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	listener, err := net.ListenUnix("unix",
		&net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // it has another name then
	if err = os.Chmod(hidden, 0o600); err == nil {
		err = os.Rename(hidden, path)
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close(), os.Remove(hidden))
	}
	return listener, nil
}

// Free makes the directory of a socket, and removes a socket on which nobody answers. It removes
// nothing else: a path may be a mistake.
func Free(ctx context.Context, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the directory of the socket: %w", err)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look at what is there: %w", err)
	case info.Mode()&os.ModeSocket == 0:
		return errors.New("there is a file that is no socket: remove it, or take another path")
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = conn.Close()
		return errors.New("another process serves there: end it, or take another socket")
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case !errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("ask who serves there: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket that an earlier process left: %w", err)
	}
	return nil
}

// errLimit refuses a request beyond the limit, in the kubelet's words.
var errLimit = status.Error(codes.ResourceExhausted, "rejected by rate limit")

func limited(limit *rate.Limiter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if !limit.Allow() {
			return nil, errLimit
		}
		return next(ctx, r)
	}
}

func limitedStream(limit *rate.Limiter) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if !limit.Allow() {
			return errLimit
		}
		return next(srv, stream)
	}
}
