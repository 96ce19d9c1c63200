package server

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// verbosity sets how much the agent logs, until the next such request: PUT /debug/flags/v with a
// number as for the kubelet's flag -v.
func (s *Server) verbosity(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodPut {
		w.WriteHeader(http.StatusNotAcceptable)
		fmt.Fprintln(w, "unsupported http method")
		return
	}
	body, err := io.ReadAll(r.Body)
	var level uint64
	if err == nil {
		level, err = strconv.ParseUint(strings.TrimSpace(string(body)), 10, 32)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, "the verbosity must be a number: %v\n", err)
		return
	}
	s.deps.SetVerbosity(uint32(level))
	s.log.Info("verbosity set", "v", level)
	fmt.Fprintf(w, "successfully set klog.logging.verbosity to %d\n", level)
}
