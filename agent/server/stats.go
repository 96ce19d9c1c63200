package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/berthd/berth/internal/loglimit"
)

// addStats adds the routes of usage and metrics.
func (s *Server) addStats(mux *mux) {
	mux.Handle("GET /stats/summary", s.slow("stats", s.summary))
	mux.Handle("POST /stats/summary", s.slow("stats", s.summary)) // the method of old clients
	mux.Handle("GET /metrics", s.scrape(func() prometheus.Gatherer { return s.deps.Metrics.Registry }))
	mux.Handle("GET /metrics/probes", s.scrape(func() prometheus.Gatherer { return s.deps.Metrics.Probes }))
	mux.Handle("GET /metrics/resource", s.scrape(s.deps.Stats.Resource))
	mux.Handle("GET /metrics/cadvisor", s.scrape(s.deps.Stats.Cadvisor))
	mux.Handle("GET /metrics/slis", s.scrape(s.slis))
}

// scrape answers with metrics that are gathered at the request. Requests of the same path that come
// meanwhile, on any listener, get the same metrics: many callers cost as much as one. Metrics that
// cannot be gathered, such as two of the same labels, are left out.
func (s *Server) scrape(gather func() prometheus.Gatherer) endpoint {
	return s.slow("metrics", func(w http.ResponseWriter, r *http.Request) {
		shared := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			families, err, _ := s.shared.Do(r.URL.Path, func() (any, error) { return gather().Gather() })
			if err != nil {
				s.faults.log(s.log, r.URL.Path, err)
			}
			return families.([]*dto.MetricFamily), err
		})
		promhttp.HandlerFor(shared, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
	})
}

// faults logs why metrics are left out of scrapes, not at each of them.
type faults struct {
	mu      sync.Mutex
	limiter loglimit.Limiter
}

func (f *faults) log(log *slog.Logger, path string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limiter.Allow(err, time.Now()) {
		log.Warn("metrics left out", "path", path, "err", cut(err.Error()))
	}
}

// summary answers with what the node and its pods use. ?only_cpu_and_memory=true leaves out what is
// expensive to measure. Requests that come while it is measured share the result.
func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	only, _ := strconv.ParseBool(r.URL.Query().Get("only_cpu_and_memory"))
	summary, err, _ := s.shared.Do("summary "+strconv.FormatBool(only), func() (any, error) {
		// others want it, too, if this caller leaves
		return json.Marshal(s.deps.Stats.Summary(context.WithoutCancel(r.Context()), only))
	})
	answerJSON(w, summary.([]byte), err)
}

// checked counts how often each health check passed and failed in scrapes of /metrics/slis.
type checked struct {
	mu     sync.Mutex
	counts map[[2]string]int // by check and outcome
}

// slis runs the health checks and reports their results as KEP-3466 defines.
func (s *Server) slis() prometheus.Gatherer {
	now := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_healthcheck", Help: "This metric records the result of a single healthcheck.",
	}, []string{"name", "type"})
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubernetes_healthchecks_total", Help: "This metric records the results of all healthcheck.",
	}, []string{"name", "status", "type"})
	const kind = "healthz"
	s.checked.mu.Lock()
	defer s.checked.mu.Unlock()
	for _, c := range s.checks() {
		outcome, value := "success", 1.0
		if c.run() != nil {
			outcome, value = "error", 0
		}
		if s.checked.counts == nil {
			s.checked.counts = map[[2]string]int{}
		}
		s.checked.counts[[2]string{c.name, outcome}]++
		now.WithLabelValues(c.name, kind).Set(value)
	}
	for key, n := range s.checked.counts {
		total.WithLabelValues(key[0], key[1], kind).Add(float64(n))
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(now, total)
	return registry
}
