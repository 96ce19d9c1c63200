package server

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/berthd/berth/client/api"
)

// runtimeVersionTimeout bounds the request for the runtime's version: the agent's version must be
// answered even if the runtime hangs.
const runtimeVersionTimeout = 2 * time.Second

// version answers with the agent's and the runtime's versions.
func (s *Server) version(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), runtimeVersionTimeout)
	defer cancel()
	out := api.Version{Version: s.cfg.Version, GoVersion: runtime.Version(), Node: s.cfg.Node, RootDir: s.cfg.RootDir}
	if v, err := s.deps.Runtime.Version(ctx); err != nil {
		out.RuntimeError = err.Error()
	} else {
		out.Runtime, out.RuntimeVersion = v.RuntimeName, v.RuntimeVersion
	}
	answer(w, out)
}
