package server

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// syncLimit is how long the main loop may be silent before the agent is unhealthy. It is the
// kubelet's value: twice its relist period, at least 2 minutes.
const syncLimit = 2 * time.Minute

// check is one health check.
type check struct {
	name string
	run  func() error
}

func (s *Server) checks() []check {
	ok := func() error { return nil }
	return []check{
		{"ping", ok},
		{"log", ok}, // the agent logs to standard error, so no buffer can be stuck
		{"syncloop", func() error { return s.backend.Healthy(syncLimit) }},
		{"device-plugin", s.backend.DevicePluginsServed},
	}
}

// healthz answers "ok", or the failed checks with code 500. ?verbose lists the checks, and
// ?exclude=NAME leaves one out.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	_, verbose := query["verbose"]
	exclude := map[string]bool{}
	for _, name := range query["exclude"] {
		exclude[name] = true
	}
	only := r.PathValue("check")
	var text strings.Builder
	found, healthy := false, true
	for _, c := range s.checks() {
		if only != "" && c.name != only {
			continue
		}
		found = true
		switch err := c.run(); {
		case exclude[c.name]:
			fmt.Fprintf(&text, "[+]%s excluded: ok\n", c.name)
		case err != nil:
			healthy = false
			fmt.Fprintf(&text, "[-]%s failed: %v\n", c.name, err)
		default:
			fmt.Fprintf(&text, "[+]%s ok\n", c.name)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch {
	case !found:
		fail(w, http.StatusNotFound, "there is no health check %q", only)
	case !healthy:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "%shealthz check failed\n", text.String())
	case verbose:
		fmt.Fprintf(w, "%shealthz check passed\n", text.String())
	default:
		fmt.Fprint(w, "ok")
	}
}
