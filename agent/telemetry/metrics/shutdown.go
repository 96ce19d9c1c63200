package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// shutdownMetrics are about the last shutdown of the machine. Names are the kubelet's.
type shutdownMetrics struct{ start, end prometheus.Gauge }

func (s *Set) shutdownMetrics() shutdownMetrics {
	m := shutdownMetrics{
		start: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_graceful_shutdown_start_time_seconds",
			Help: "When the last graceful shutdown of the node began, in seconds since 1970; 0 for never.",
		}),
		end: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_graceful_shutdown_end_time_seconds",
			Help: "When the pods of the last graceful shutdown had ended, in seconds since 1970; 0 if they had not.",
		}),
	}
	s.Registry.MustRegister(m.start, m.end)
	return m
}

// ShutdownTimes sets when the last graceful shutdown of the node began, and when its pods had
// ended. A zero time stands for never.
func (s *Set) ShutdownTimes(start, end time.Time) {
	s.shutdown.start.Set(unixSeconds(start))
	s.shutdown.end.Set(unixSeconds(end))
}

// unixSeconds returns whole seconds since 1970; 0 for a zero time.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}
