package server

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// twice is a collector whose metrics have the same labels.
type twice struct{ desc *prometheus.Desc }

func (w twice) Describe(chan<- *prometheus.Desc) {}

func (w twice) Collect(out chan<- prometheus.Metric) {
	for range 2 {
		out <- prometheus.MustNewConstMetric(w.desc, prometheus.GaugeValue, 1)
	}
}

// A metric that cannot be gathered takes no other away, and fills no log.
func TestScrapeOfFaultyMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(twice{prometheus.NewDesc("faulty", "it is there twice", nil, nil)},
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "good", Help: "it is well"}))
	var text bytes.Buffer
	s := &Server{log: slog.New(slog.NewTextHandler(&text, nil))}
	serve := s.scrape(func() prometheus.Gatherer { return registry }).serve
	for range 3 {
		w := httptest.NewRecorder()
		serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics/resource", nil))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "good 0") {
			t.Errorf("%d %q", w.Code, w.Body)
		}
	}
	if n := strings.Count(text.String(), "metrics left out"); n != 1 {
		t.Errorf("%d lines in the log: %s", n, text.String())
	}
}
