package fake

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/berthd/berth/agent/cluster/kube"
)

// Server is an API server in memory. Make it with [New], and end it with Close.
type Server struct {
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	http   *http.Server
	pipes  chan net.Conn
	served sync.WaitGroup

	mu       sync.Mutex
	closed   chan struct{}
	down     bool
	fault    func(*http.Request) *Fault
	requests []Request
	store    store
	conns    []net.Conn
	watchers map[*watcher]struct{}
}

// Fault is what happens to a request before its answer, or instead of it.
type Fault struct {
	// Delay is how long the answer is delayed.
	Delay time.Duration
	// Code is the answer's status code if it is not 0; RetryAfter is its header, in seconds.
	Code       int
	RetryAfter int
	// Drop ends the connection without an answer. With After it does so only after the request was
	// carried out.
	Drop, After bool
}

// Request is a request that a client sent.
type Request struct {
	Method, Path, Query, Body string
}

// New starts a server.
func New() *Server {
	s := &Server{
		scheme:   kube.Scheme(),
		pipes:    make(chan net.Conn),
		closed:   make(chan struct{}),
		watchers: map[*watcher]struct{}{},
	}
	s.codecs = serializer.NewCodecFactory(s.scheme)
	s.store = newStore()
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: time.Minute}
	s.served.Go(func() { _ = s.http.Serve(pipeListener{s}) })
	return s
}

// Close ends the server and all its connections.
func (s *Server) Close() {
	close(s.closed)
	_ = s.http.Close()
	s.BreakWatches()
	s.served.Wait()
}

// Config returns a config for connections with this server.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: "http://fake.invalid", Dial: s.dial}
}

// Conn returns a connection with this server.
func (s *Server) Conn(cfg kube.Config) *kube.Conn {
	c, err := kube.New(s.Config(), cfg)
	if err != nil {
		panic(err) // the config is always valid
	}
	return c
}

func (s *Server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	if down {
		return nil, errors.New("connect: connection refused")
	}
	ours, theirs := net.Pipe()
	select {
	case s.pipes <- ours:
	case <-s.closed:
		return nil, errors.New("connect: connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	s.conns = append(s.conns, ours)
	s.mu.Unlock()
	return theirs, nil
}

// Stop makes the server unreachable, and breaks its connections.
func (s *Server) Stop() {
	s.mu.Lock()
	s.down = true
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
	s.BreakWatches()
}

// Start makes the server reachable again.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

// Fail sets the function that decides for every later request whether it fails; nil lets all
// requests succeed.
func (s *Server) Fail(fault func(*http.Request) *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Requests returns the requests since the last call.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.requests)
	s.requests = nil
	return out
}

// pipeListener returns the server's ends of pipes.
type pipeListener struct{ s *Server }

// Accept returns the next connection.
func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.s.pipes:
		return c, nil
	case <-l.s.closed:
		return nil, net.ErrClosed
	}
}

// Close does nothing: [Server.Close] ends the listener.
func (l pipeListener) Close() error { return nil }

// Addr is an address without a meaning.
func (l pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "fake", Net: "pipe"} }
