package server

import (
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/berthd/berth/client/api"
)

// socketRoutes is all that there is: for root and the socket's group.
func (s *Server) socketRoutes() http.Handler {
	mux := http.NewServeMux()
	s.addHealthz(mux)
	s.addReadOnly(mux)
	mux.Handle("GET /runningpods/", s.short("runningpods", s.runningPods))
	mux.Handle("GET /configz", s.short("configz", s.configz))
	mux.Handle("GET /containerLogs/{namespace}/{pod}/{container}", s.long("containerLogs", s.containerLogs))

	for _, stream := range []struct {
		name   string
		paths  []string
		handle http.HandlerFunc
	}{
		{"exec", []string{"/exec/{namespace}/{pod}/{container}", "/exec/{namespace}/{pod}/{uid}/{container}"}, s.exec},
		{"attach", []string{"/attach/{namespace}/{pod}/{container}", "/attach/{namespace}/{pod}/{uid}/{container}"}, s.attach},
		{"portForward", []string{"/portForward/{namespace}/{pod}", "/portForward/{namespace}/{pod}/{uid}"}, s.portForward},
	} {
		for _, path := range stream.paths {
			mux.Handle("GET "+path, s.long(stream.name, stream.handle))
			mux.Handle("POST "+path, s.long(stream.name, stream.handle))
		}
	}
	for _, path := range []string{"/run/{namespace}/{pod}/{container}", "/run/{namespace}/{pod}/{uid}/{container}"} {
		mux.Handle("POST "+path, s.long("run", s.run))
	}

	mux.Handle("GET "+api.PathPods, s.long("berth", s.summaries))
	mux.Handle("GET "+api.PathWhy+"{namespace}/{pod}", s.short("berth", s.why))
	mux.Handle("GET "+api.PathManifests, s.short("berth", s.manifests))
	mux.Handle("GET "+api.PathEvents, s.long("berth", s.events))
	mux.Handle("GET "+api.PathImages, s.short("berth", s.images))
	mux.Handle("GET "+api.PathVersion, s.short("berth", s.version))

	mux.Handle("GET /debug/pprof/", s.long("debug", pprof.Index))
	mux.Handle("GET /debug/pprof/cmdline", s.short("debug", pprof.Cmdline))
	mux.Handle("GET /debug/pprof/profile", s.long("debug", pprof.Profile))
	mux.Handle("GET /debug/pprof/symbol", s.short("debug", pprof.Symbol))
	mux.Handle("GET /debug/pprof/trace", s.long("debug", pprof.Trace))
	return routes{mux}
}

// readOnlyRoutes is what the kubelet's read-only port has.
func (s *Server) readOnlyRoutes() http.Handler {
	mux := http.NewServeMux()
	s.addHealthz(mux)
	s.addReadOnly(mux)
	return routes{mux}
}

// healthzRoutes is what the healthz port has.
func (s *Server) healthzRoutes() http.Handler {
	mux := http.NewServeMux()
	s.addHealthz(mux)
	return routes{mux}
}

// addHealthz adds the health checks; they are not bounded with the others, so that a busy agent is not a dead one.
func (s *Server) addHealthz(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /healthz/{check}", s.healthz)
}

func (s *Server) addReadOnly(mux *http.ServeMux) {
	metrics := promhttp.HandlerFor(s.deps.Metrics.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	mux.Handle("GET /pods", s.short("pods", s.pods))
	mux.Handle("GET /pods/", s.short("pods", s.pods))
	mux.Handle("GET /metrics", s.short("metrics", metrics.ServeHTTP))
}

// configz shows the agent's configuration.
func (s *Server) configz(w http.ResponseWriter, _ *http.Request) { answer(w, s.cfg.Configz) }
