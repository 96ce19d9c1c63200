package metrics

import "github.com/prometheus/client_golang/prometheus"

// imageMetrics are about the images of the node.
type imageMetrics struct {
	collected *prometheus.CounterVec
}

func (s *Set) imageMetrics() imageMetrics {
	return imageMetrics{
		collected: s.counters("kubelet_image_garbage_collected_total", "Unused images that were removed, by reason.",
			"reason"),
	}
}

// ImageCollected counts an unused image that was removed. reason is space or age.
func (s *Set) ImageCollected(reason string) { s.images.collected.WithLabelValues(reason).Inc() }
