package server

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// mux is a ServeMux that knows the first segments of its paths.
type mux struct {
	*http.ServeMux
	roots map[string]bool
}

func newMux() *mux { return &mux{http.NewServeMux(), map[string]bool{}} }

// Handle adds a handler for a pattern.
func (m *mux) Handle(pattern string, h http.Handler) {
	_, path, _ := strings.Cut(pattern, "/")
	root, _, _ := strings.Cut(path, "/")
	m.roots["/"+root] = true
	m.ServeMux.Handle(pattern, h)
}

// HandleFunc adds a function for a pattern.
func (m *mux) HandleFunc(pattern string, h http.HandlerFunc) { m.Handle(pattern, h) }

// paths returns the first segments of its paths, sorted.
func (m *mux) paths() []string { return slices.Sorted(maps.Keys(m.roots)) }
