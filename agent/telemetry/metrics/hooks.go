package metrics

import "github.com/prometheus/client_golang/prometheus"

// hookMetrics are about lifecycle hooks.
type hookMetrics struct {
	fallbacks, slept prometheus.Counter
}

// hookMetrics makes the kubelet's metrics of hooks.
func (s *Set) hookMetrics() hookMetrics {
	m := hookMetrics{
		fallbacks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_lifecycle_handler_http_fallbacks_total", Help: "HTTPS hooks that succeeded over HTTP.",
		}),
		slept: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_lifecycle_handler_sleep_terminated_total", Help: "Sleep hooks that ended before their time.",
		}),
	}
	s.Registry.MustRegister(m.fallbacks, m.slept)
	return m
}

// Hook counts a hook that ran. httpFallback: an HTTPS hook succeeded over HTTP; sleepTerminated: a
// sleep was cut short.
func (s *Set) Hook(httpFallback, sleepTerminated bool) {
	if httpFallback {
		s.hooks.fallbacks.Inc()
	}
	if sleepTerminated {
		s.hooks.slept.Inc()
	}
}
