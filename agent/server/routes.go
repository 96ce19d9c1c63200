package server

import (
	"net/http"
	"net/http/pprof"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/internal/pieces"
)

// socketRoutes returns all routes, for root and the socket's group.
func (s *Server) socketRoutes() http.Handler {
	mux := newMux(s.waitTimeout)
	s.addHealthz(mux)
	s.addReadOnly(mux)
	s.addDebugging(mux, Handlers{
		Debugging:  true,
		Profiling:  true,
		DebugFlags: true,
		SystemLogs: true,
		Checkpoint: true,
		Flagz:      true,
		Statusz:    true,
	})
	s.addOwn(mux)
	return s.routes(mux)
}

// apiRoutes returns the kubelet's API, for callers that the guard allows. berth's own API is not in
// it.
func (s *Server) apiRoutes() http.Handler {
	mux := newMux(s.waitTimeout)
	s.addHealthz(mux)
	s.addReadOnly(mux)
	if s.cfg.Debugging {
		s.addDebugging(mux, s.cfg.Handlers)
	} else {
		s.addDisabled(mux, "Debug endpoints are disabled.", "run", "exec", "attach", "portForward", "containerLogs",
			"runningpods", "debug/pprof", "logs")
	}
	g := guarded{s.routes(mux), s.deps.Guard}
	return s.deps.Tracing.Handler(g.route, g)
}

// addDebugging adds what the kubelet has with enableDebuggingHandlers: logs, commands and streams,
// and the other handlers that h enables.
func (s *Server) addDebugging(mux *mux, h Handlers) {
	if h.Profiling {
		s.addProfiles(mux)
	} else {
		s.addDisabled(mux, "profiling endpoint is disabled.", "debug/pprof")
	}
	if h.SystemLogs {
		mux.Handle("GET /logs/", s.lasting("logs", s.hostLogs.ServeHTTP).does(readingNode))
	} else {
		s.addDisabled(mux, "logs endpoint is disabled.", "logs")
	}
	if h.DebugFlags && s.deps.SetVerbosity != nil {
		mux.Handle("/debug/flags/v", s.quick("debug", s.verbosity))
	} else {
		mux.Handle("/debug/flags/v", s.disabled("flags endpoint is disabled."))
	}
	if h.Checkpoint {
		mux.Handle("POST /checkpoint/{namespace}/{pod}/{container}", s.lasting("checkpoint", s.checkpoint))
	}
	if h.Flagz {
		mux.Handle("GET /flagz", s.flagz())
	}
	if h.Statusz {
		mux.Handle("GET /statusz", s.statusz(mux.paths))
	}
	mux.Handle("GET /runningpods/", s.slow("runningpods", s.runningPods))
	mux.Handle("GET /configz", s.quick("configz", s.configz))
	mux.Handle("GET /containerLogs/{namespace}/{pod}/{container}",
		s.lasting("containerLogs", s.containerLogs).does(readingLogs))

	for _, stream := range []struct {
		name   string
		paths  []string
		handle http.HandlerFunc
	}{
		{"exec", []string{"/exec/{namespace}/{pod}/{container}", "/exec/{namespace}/{pod}/{uid}/{container}"}, s.exec},
		{
			"attach",
			[]string{"/attach/{namespace}/{pod}/{container}", "/attach/{namespace}/{pod}/{uid}/{container}"},
			s.attach,
		},
		{
			"portForward",
			[]string{"/portForward/{namespace}/{pod}", "/portForward/{namespace}/{pod}/{uid}"},
			s.portForward,
		},
	} {
		for _, path := range stream.paths {
			mux.Handle("GET "+path, s.stream(stream.name, stream.handle).does(inContainer))
			mux.Handle("POST "+path, s.stream(stream.name, stream.handle).does(inContainer))
		}
	}
	for _, path := range []string{"/run/{namespace}/{pod}/{container}", "/run/{namespace}/{pod}/{uid}/{container}"} {
		mux.Handle("POST "+path, s.lasting("run", s.run).does(inContainer))
	}
}

// disabled answers that something is disabled.
func (s *Server) disabled(why string) endpoint {
	return s.quick("disabled", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusMethodNotAllowed, "%s", why)
	})
}

// addDisabled makes these paths, and all paths below them, answer why they are disabled.
func (s *Server) addDisabled(mux *mux, why string, paths ...string) {
	for _, path := range paths {
		mux.Handle("/"+path+"/", s.disabled(why))
	}
}

// addOwn adds berth's own API.
func (s *Server) addOwn(mux *mux) {
	mux.Handle("GET "+api.PathPods, s.watch("berth", s.summaries))
	mux.Handle("POST "+api.PathPods+"/{namespace}/{pod}/"+api.EphemeralContainers, s.quick("berth", s.ephemeral))
	mux.Handle("GET "+api.PathWhy+"{namespace}/{pod}", s.quick("berth", s.why).slowIf(wantsPast))
	mux.Handle("GET "+api.PathStatus, s.quick("berth", s.status))
	mux.Handle("GET "+api.PathNotes, s.quick("berth", s.notes))
	mux.Handle("GET "+api.PathManifests, s.slow("berth", s.manifests))
	mux.Handle("GET "+api.PathEvents, s.watch("berth", s.events).slowIf(wantsPast))
	mux.Handle("GET "+api.PathImages, s.slow("berth", s.images))
	mux.Handle("POST "+api.PathImagesPull, s.lasting("berth", s.pullImage))
	mux.Handle("DELETE "+api.PathImages, s.slow("berth", s.removeImage))
	admission := s.quick("berth", s.admission)
	admission.body = maxPodsBody
	mux.Handle("POST "+api.PathAdmission, admission)
	mux.Handle("POST "+api.PathImagesPrune, s.lasting("berth", s.pruneImages))
	mux.Handle("GET "+api.PathVersion, s.slow("berth", s.version))
	if s.deps.Drainer != nil {
		s.addDrain(mux)
	}
	if s.deps.Operator != nil {
		s.addOperator(mux)
	}
}

// addProfiles adds Go's profiles (enableProfilingHandler).
func (s *Server) addProfiles(mux *mux) {
	mux.Handle("GET /debug/pprof/", s.profile(pprof.Index))
	mux.Handle("GET /debug/pprof/cmdline", s.quick("debug", pprof.Cmdline))
	mux.Handle("GET /debug/pprof/profile", s.profile(pprof.Profile))
	mux.Handle("GET /debug/pprof/symbol", s.quick("debug", pprof.Symbol))
	mux.Handle("GET /debug/pprof/trace", s.profile(pprof.Trace))
}

// profile returns an endpoint of profiles, which may be large.
func (s *Server) profile(take http.HandlerFunc) endpoint {
	return s.lasting("debug", func(w http.ResponseWriter, r *http.Request) {
		out := pieces.New(w, plainTimeout)
		defer out.End()
		take(out, r)
	}).does(profiling)
}

// readOnlyRoutes returns the routes of the kubelet's read-only port.
func (s *Server) readOnlyRoutes() http.Handler {
	mux := newMux(s.waitTimeout)
	s.addHealthz(mux)
	s.addReadOnly(mux)
	return s.routes(mux)
}

// healthzRoutes returns the routes of the healthz port.
func (s *Server) healthzRoutes() http.Handler {
	mux := newMux(s.waitTimeout)
	s.addHealthz(mux)
	return s.routes(mux)
}

// addHealthz adds the health checks. The limits of other requests do not apply to them, so that a
// busy agent is not taken for a dead one.
func (s *Server) addHealthz(mux *mux) {
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /healthz/{check}", s.healthz)
}

func (s *Server) addReadOnly(mux *mux) {
	mux.Handle("GET /pods", s.quick("pods", s.pods))
	mux.Handle("GET /pods/", s.quick("pods", s.pods))
	s.addStats(mux)
}
