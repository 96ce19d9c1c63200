package server

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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

// begin counts a request, and returns the function that counts its end.
func (c *counts) begin(method, path string, lasts bool) (end func()) {
	labels := []string{methodLabel(method), path, "readwrite", strconv.FormatBool(lasts)}
	began := time.Now()
	inFlight := c.inFlight.WithLabelValues(labels...)
	inFlight.Inc()
	return func() {
		inFlight.Dec()
		c.total.WithLabelValues(labels...).Inc()
		c.seconds.WithLabelValues(labels...).Observe(time.Since(began).Seconds())
	}
}

// methodLabel returns a method's label: callers may invent as many methods as they like.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "other"
}
