package server

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// mux is the ServeMux of one listener. It bounds what the listener works on, and knows the first
// segments of its paths.
type mux struct {
	*http.ServeMux
	budget *budget
	roots  map[string]bool
}

func newMux(waitTimeout time.Duration) *mux {
	return &mux{http.NewServeMux(), newBudget(waitTimeout), map[string]bool{}}
}

// Handle adds an endpoint for a pattern.
func (m *mux) Handle(pattern string, e endpoint) { m.add(pattern, e.bounded(m.budget)) }

// HandleFunc adds a function for a pattern. The listener's bounds do not apply to it.
func (m *mux) HandleFunc(pattern string, h http.HandlerFunc) { m.add(pattern, h) }

func (m *mux) add(pattern string, h http.Handler) {
	_, path, _ := strings.Cut(pattern, "/")
	root, _, _ := strings.Cut(path, "/")
	m.roots["/"+root] = true
	m.ServeMux.Handle(pattern, h)
}

// paths returns the first segments of its paths, sorted.
func (m *mux) paths() []string { return slices.Sorted(maps.Keys(m.roots)) }

// routes answers requests that no pattern matches with a Status, too.
type routes struct {
	mux *http.ServeMux
	// within is how long an answer may take that comes from no endpoint.
	within time.Duration
}

func (s *Server) routes(m *mux) routes { return routes{m.ServeMux, s.refusalTimeout} }

// ServeHTTP finds the handler and calls it. An earlier request on the connection may have left a
// deadline, and an endpoint sets its own.
func (t routes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sendWithin(w, t.within)
	if _, pattern := t.mux.Handler(r); pattern != "" {
		t.mux.ServeHTTP(w, r)
		return
	}
	refused := &refusal{ResponseWriter: w, code: http.StatusNotFound}
	t.mux.ServeHTTP(refused, r)
	if refused.code == http.StatusMethodNotAllowed {
		fail(w, refused.code, "%s %s: use %s", r.Method, r.URL.Path,
			strings.ReplaceAll(w.Header().Get("Allow"), ", ", " or "))
		return
	}
	fail(w, refused.code, "there is no %s", r.URL.Path)
}
