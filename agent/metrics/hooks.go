package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/agent/hooks"
)

// hookMetrics are about lifecycle hooks.
type hookMetrics struct {
	fallbacks, slept prometheus.Counter
}

// hookMetrics makes those of the kubelet.
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

// Hook counts a hook that ran; it fits hooks.Deps.Observe.
func (s *Set) Hook(o hooks.Observation) {
	if o.HTTPFallback {
		s.hooks.fallbacks.Inc()
	}
	if o.SleepTerminated {
		s.hooks.slept.Inc()
	}
}
