package server

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// maxBody bounds the body of a request in bytes: most endpoints take no more than a form.
// maxPodsBody bounds a body with all pods of a node. bodyTimeout bounds the time in which a body
// must arrive.
const (
	maxBody     = 64 << 10
	maxPodsBody = 8 << 20
	bodyTimeout = 10 * time.Second
)

// plainTimeout bounds the writing of a response that does not last.
const plainTimeout = 30 * time.Second

// Limits of the requests that one listener answers at the same time, by their cost.
const (
	maxQuick   = 64
	maxSlow    = 32
	maxLasting = 256
)

// cost says how long a request may take.
type cost int

const (
	// quick requests are answered from what the agent knows.
	quick cost = iota
	// slow requests ask the runtime or the file systems, which may hang.
	slow
	// lasting requests are followed logs, watches and streams.
	lasting
)

// endpoint is a handler with what it costs. [mux.Handle] binds it to the budget of a listener.
type endpoint struct {
	server *Server
	// path is the name of the endpoint in metrics.
	path string
	cost func(*http.Request) cost
	// kind is what the lasting requests do; empty for requests that only count as lasting.
	kind kind
	// hijacks says that the handler takes over the connection of a request with an Upgrade header:
	// what follows such a request is no body.
	hijacks bool
	// body is how many bytes the body may have; 0 means [maxBody].
	body  int64
	serve http.HandlerFunc
}

// quick, slow and lasting return endpoints whose requests have that cost. stream returns a lasting
// endpoint that takes over its connections.
func (s *Server) quick(path string, h http.HandlerFunc) endpoint { return s.endpoint(path, quick, h) }

func (s *Server) slow(path string, h http.HandlerFunc) endpoint { return s.endpoint(path, slow, h) }

func (s *Server) lasting(path string, h http.HandlerFunc) endpoint {
	return s.endpoint(path, lasting, h)
}

func (s *Server) stream(path string, h http.HandlerFunc) endpoint {
	e := s.endpoint(path, lasting, h)
	e.hijacks = true
	return e
}

func (s *Server) endpoint(path string, c cost, h http.HandlerFunc) endpoint {
	return endpoint{server: s, path: path, cost: func(*http.Request) cost { return c }, serve: h}
}

// watch returns an endpoint that lasts if a request asks for a watch, and is quick otherwise.
func (s *Server) watch(path string, h http.HandlerFunc) endpoint {
	e := s.quick(path, h)
	e.cost = func(r *http.Request) cost {
		if asked(r, "watch") {
			return lasting
		}
		return quick
	}
	return e
}

// slowIf returns an endpoint whose quick requests are slow if that is true of them.
func (e endpoint) slowIf(is func(*http.Request) bool) endpoint {
	before := e.cost
	e.cost = func(r *http.Request) cost {
		if c := before(r); c != quick || !is(r) {
			return c
		}
		return slow
	}
	return e
}

// does returns an endpoint whose requests count as lasting work of a kind, if it is one of pods in
// the pod of their path.
func (e endpoint) does(k kind) endpoint {
	e.kind = k
	return e
}

// share is what a request has of the lasting work.
func (e endpoint) share(r *http.Request) share {
	if maxOfPod[e.kind] == 0 {
		return share{kind: e.kind}
	}
	return share{kind: e.kind, pod: r.PathValue("namespace") + "/" + r.PathValue("pod")}
}

// bounded returns the handler of an endpoint. It reads the body before it takes a place, because a
// caller may send the body slowly; it refuses requests above the budget, and counts the others.
func (e endpoint) bounded(b *budget) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // the body and a place may take long
		if !e.hijacks || r.Header.Get("Upgrade") == "" {
			if err := e.readBody(w, r); err != nil {
				w.Header().Set("Connection", "close")
				sendWithin(w, e.server.refusalTimeout)
				failWith(w, err)
				return
			}
		}
		first := isFirst(r.Context())
		cost := e.cost(r)
		var answering *seat
		if cost != lasting {
			answering = &seat{ResponseWriter: w, first: first}
			w = answering
		}
		leave, err := b.enter(r.Context(), cost, e.share(r), answering)
		if err != nil {
			w.Header().Set("Retry-After", "1")
			sendWithin(w, e.server.refusalTimeout)
			failWith(w, err)
			return
		}
		defer leave()
		defer served(r.Context())
		defer e.server.counts.begin(r.Method, e.path, cost == lasting)()
		switch {
		case cost != lasting:
			sendWithin(w, plainTimeout)
		case r.ProtoMajor > 1: // in which nothing is hijacked
			w = &failing{w}
		}
		e.serve(w, r)
	})
}

// failing is the ResponseWriter of work that lasts, over HTTP/2, where an answer waits as long as
// the caller takes none. An error is sent within [plainTimeout].
type failing struct{ http.ResponseWriter }

// Unwrap is for http.ResponseController.
func (f *failing) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// WriteHeader begins the answer.
func (f *failing) WriteHeader(code int) {
	if code >= http.StatusBadRequest {
		sendWithin(f.ResponseWriter, plainTimeout)
	}
	f.ResponseWriter.WriteHeader(code)
}

// readBody reads the body of a request. Meanwhile the connection does not count as one in use: who
// sends a body slowly keeps nobody out.
func (e endpoint) readBody(w http.ResponseWriter, r *http.Request) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	defer unused(r.Context())()
	return readBody(w, r, cmp.Or(e.body, maxBody), e.server.bodyTimeout)
}

// readBody reads a request's body of at most limit bytes into memory, within that time.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) error {
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(within))
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return failure(http.StatusRequestEntityTooLarge, "the request's body has more than %d bytes", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return failure(http.StatusRequestTimeout, "the request's body did not arrive within %s", within)
	case err != nil:
		return failure(http.StatusBadRequest, "reading the request's body: %v", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	r.Body = io.NopCloser(bytes.NewReader(data))
	return nil
}
