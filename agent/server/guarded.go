package server

import (
	"net/http"
	"net/url"
	"strings"
	"time"
)

// refusalTimeout bounds the sending of an answer that needs no handler, such as a refusal. A caller
// of HTTP/2 may forbid to send it, and need not be known for that, while the answer holds the
// request. Such an answer is one packet.
const refusalTimeout = 5 * time.Second

// guarded passes a request to its handler if the guard allows it. The guard decides about the path
// of the handler, not about the path as the request spells it. Therefore no spelling reaches a
// handler with the rights of another handler.
type guarded struct {
	routes routes
	guard  Guard
}

// ServeHTTP asks the guard and calls the handler.
func (g guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := g.route(r)
	if path == "" {
		path = r.URL.Path
	}
	if g.guard.Check(&soon{w, g.routes.within}, r, path) {
		g.routes.ServeHTTP(w, r)
	}
}

// route returns the path of the handler that answers a request; empty where there is none.
func (g guarded) route(r *http.Request) string {
	_, pattern := g.routes.mux.Handler(r)
	if pattern == "" {
		return ""
	}
	_, path, _ := strings.Cut(pattern, "/")
	return "/" + path
}

// soon is the ResponseWriter of an answer that must be sent within a time after it has begun. What
// comes before it, such as the guard's questions, takes as long as it takes.
type soon struct {
	http.ResponseWriter
	within time.Duration
}

// WriteHeader begins the answer.
func (s *soon) WriteHeader(code int) {
	sendWithin(s.ResponseWriter, s.within)
	s.ResponseWriter.WriteHeader(code)
}

// Write sends a part of the answer.
func (s *soon) Write(p []byte) (int, error) {
	sendWithin(s.ResponseWriter, s.within)
	return s.ResponseWriter.Write(p)
}

// sendWithin bounds the time for sending the rest of an answer.
func sendWithin(w http.ResponseWriter, within time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(within))
}

// drop drops what a request of HTTP/2 holds, after its handler has ended: the rest of the answer
// may wait for a caller that has many requests at once.
func drop(r *http.Request) {
	if r.ProtoMajor < 2 {
		return // a handler may have taken the connection over, and left the request to others
	}
	clear(r.Header)
	clear(r.Trailer)
	r.URL, r.RequestURI, r.Host, r.Form, r.PostForm = &url.URL{}, "", "", nil, nil
	if r.Method != http.MethodHead { // which has no body
		r.Method = ""
	}
}
