package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/agent/node/lock"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/retry"
)

// has reports whether there is a port of a name.
func (c *Config) has(name string) bool {
	return slices.ContainsFunc(c.Ports, func(p configs.Port) bool { return p.Name == name })
}

// retryListen is how long the server waits before it listens again on a port that was in use.
const retryListen = 5 * time.Second

// Run listens and answers until ctx ends. It returns when everything is closed and joined. If the
// socket cannot be made, or if another agent has one of the ports, Run fails. If another program
// has the port, Run tries again.
func (s *Server) Run(ctx context.Context) error {
	socket, err := listenSocket(ctx, s.cfg.Socket, s.cfg.SocketGroup, s.log)
	if err != nil {
		return err
	}
	s.listens.Do(func() { close(s.listening) })
	group, ctx := errgroup.WithContext(ctx)
	attrs := []any{"socket", s.cfg.Socket}
	for _, port := range s.cfg.Ports {
		attrs = append(attrs, port.Name, port.Address)
		group.Go(func() error { return s.servePort(ctx, port) })
	}
	s.log.Info("listening", attrs...)
	group.Go(func() error { return s.serve(ctx, socket, socket.allow(s.socketRoutes()), nil) })
	return group.Wait()
}

// servePort serves a port. If another program has the port, servePort tries again.
func (s *Server) servePort(ctx context.Context, port configs.Port) error {
	var handler http.Handler
	secure := s.deps.TLS
	switch port.Name {
	case configs.PortAPI:
		handler = s.apiRoutes()
	case configs.PortReadOnly:
		handler, secure = s.readOnlyRoutes(), nil
	default:
		handler, secure = s.healthzRoutes(), nil
	}
	for ctx.Err() == nil {
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp", port.Address)
		if err == nil {
			err = s.serve(ctx, l, handler, secure)
		}
		if ctx.Err() != nil || err == nil {
			return nil //nolint:nilerr // the end of ctx is no failure of the port
		}
		if errors.Is(err, unix.EADDRINUSE) {
			if held := lock.Port(ctx, port); held != nil {
				return held
			}
		}
		s.log.Error("port not served; it is tried again", "server", port.Name, "address", port.Address, "err", err)
		if !retry.Sleep(ctx, retryListen) {
			return nil
		}
	}
	return nil
}
