package metrics

import "github.com/prometheus/client_golang/prometheus"

// imageMetrics are about the images of the node.
type imageMetrics struct {
	collected, ensured *prometheus.CounterVec
}

func (s *Set) imageMetrics() imageMetrics {
	return imageMetrics{
		collected: s.counters("kubelet_image_garbage_collected_total", "Unused images that were removed, by reason.",
			"reason"),
		ensured: s.counters("kubelet_image_manager_ensure_image_requests_total",
			"Decisions how a container gets its image: what is there is used, or pulled, or refused.",
			"pull_policy", "present_locally", "pull_required"),
	}
}

// ImageCollected counts an unused image that was removed. reason is space or age.
func (s *Set) ImageCollected(reason string) { s.images.collected.WithLabelValues(reason).Inc() }

// ImageEnsured counts a decision how a container gets its image; it fits images.Deps.Ensured.
func (s *Set) ImageEnsured(policy, present, pull string) {
	s.images.ensured.WithLabelValues(policy, present, pull).Inc()
}
