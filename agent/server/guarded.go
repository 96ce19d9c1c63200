package server

import (
	"net/http"
	"strings"
)

// guarded passes a request to its handler if the guard allows it. The guard decides about the path
// of the handler, not about the path as the request spells it. Therefore no spelling reaches a
// handler with the rights of another handler.
type guarded struct {
	mux   *http.ServeMux
	guard Guard
}

// ServeHTTP asks the guard and calls the handler.
func (g guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := g.route(r)
	if path == "" {
		path = r.URL.Path
	}
	if g.guard.Check(w, r, path) {
		routes{g.mux}.ServeHTTP(w, r)
	}
}

// route returns the path of the handler that answers a request; empty where there is none.
func (g guarded) route(r *http.Request) string {
	_, pattern := g.mux.Handler(r)
	if pattern == "" {
		return ""
	}
	_, path, _ := strings.Cut(pattern, "/")
	return "/" + path
}
