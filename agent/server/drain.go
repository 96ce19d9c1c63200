package server

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/berthd/berth/client/api"
)

// addDrain adds the routes by which the node is drained; only the socket has them.
func (s *Server) addDrain(mux *mux) {
	mux.Handle("GET "+api.PathDrain, s.quick("berth", s.drained))
	mux.Handle("POST "+api.PathDrain, s.quick("berth", s.drain))
	mux.Handle("DELETE "+api.PathDrain, s.quick("berth", s.undrain))
}

func (s *Server) drained(w http.ResponseWriter, _ *http.Request) { answer(w, s.deps.Drainer.Drained()) }

func (s *Server) drain(w http.ResponseWriter, r *http.Request) {
	var req api.DrainRequest
	err := json.NewDecoder(r.Body).Decode(&req)
	if err != nil && !errors.Is(err, io.EOF) {
		failWith(w, failure(http.StatusBadRequest, "reading the request to drain: %v", err))
		return
	}
	if req.GraceSeconds != nil && *req.GraceSeconds < 0 {
		failWith(w, failure(http.StatusBadRequest, "graceSeconds is %d: it must not be negative", *req.GraceSeconds))
		return
	}
	if err := s.deps.Drainer.Drain(req); err != nil {
		failWith(w, err)
		return
	}
	answer(w, s.deps.Drainer.Drained())
}

func (s *Server) undrain(w http.ResponseWriter, _ *http.Request) {
	if err := s.deps.Drainer.Undrain(); err != nil {
		failWith(w, failure(http.StatusConflict, "%v", err))
		return
	}
	answer(w, s.deps.Drainer.Drained())
}
