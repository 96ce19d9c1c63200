package server

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxBody bounds the body of a request in bytes: no endpoint takes more than a form.
const maxBody = 64 << 10

// plainTimeout bounds the writing of a short response.
const plainTimeout = 30 * time.Second

// short returns the handler of requests that are answered at once.
func (s *Server) short(path string, next http.HandlerFunc) http.Handler {
	return s.bounded(s.plain, path, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(plainTimeout))
		next(w, r)
	}))
}

// long returns the handler of requests that may last.
func (s *Server) long(path string, next http.HandlerFunc) http.Handler {
	return s.bounded(s.streams, path, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// An earlier request on the connection may have set a deadline.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		next(w, r)
	}))
}

// bounded refuses requests above the limit, bounds their bodies, and counts them.
func (s *Server) bounded(slots chan struct{}, path string, lasts bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			w.Header().Set("Retry-After", "1")
			fail(w, http.StatusTooManyRequests, "the agent answers %d such requests already: try again later",
				cap(slots))
			return
		}
		labels := []string{r.Method, path, "readwrite", strconv.FormatBool(lasts)}
		began := time.Now()
		inFlight := s.counts.inFlight.WithLabelValues(labels...)
		inFlight.Inc()
		defer func() {
			inFlight.Dec()
			s.counts.total.WithLabelValues(labels...).Inc()
			s.counts.seconds.WithLabelValues(labels...).Observe(time.Since(began).Seconds())
		}()
		if r.Header.Get("Upgrade") == "" {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		}
		next.ServeHTTP(w, r)
	})
}

// counts are the kubelet's metrics of its HTTP server.
type counts struct {
	total    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
}

func newCounts(registry *prometheus.Registry) (counts, error) {
	labels := []string{"method", "path", "server_type", "long_running"}
	c := counts{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_http_requests_total", Help: "HTTP requests answered.",
		}, labels),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_http_requests_duration_seconds",
			Help:    "Duration in seconds of HTTP requests.",
			Buckets: []float64{.005, .05, .5, 5, 60},
		}, labels),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_http_inflight_requests", Help: "HTTP requests being answered.",
		}, labels),
	}
	return c, errors.Join(registry.Register(c.total), registry.Register(c.seconds), registry.Register(c.inFlight))
}

// routes answers requests that no pattern matches with a Status, too.
type routes struct {
	mux *http.ServeMux
}

// ServeHTTP finds the handler and calls it.
func (t routes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, pattern := t.mux.Handler(r); pattern != "" {
		t.mux.ServeHTTP(w, r)
		return
	}
	refused := &refusal{ResponseWriter: w, code: http.StatusNotFound}
	t.mux.ServeHTTP(refused, r)
	if refused.code == http.StatusMethodNotAllowed {
		fail(w, refused.code, "%s %s: use %s", r.Method, r.URL.Path,
			strings.ReplaceAll(w.Header().Get("Allow"), ", ", " or "))
		return
	}
	fail(w, refused.code, "there is no %s", r.URL.Path)
}
