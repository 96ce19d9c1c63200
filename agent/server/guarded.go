package server

import (
	"net/http"
	"strings"
)

// guarded lets only those requests to handlers that the guard lets in. It asks about the path of the handler that would answer, not about the request's
// spelling of it: no spelling leads to a handler by the rights of another.
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
