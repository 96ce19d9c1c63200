package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// pullHistogram makes kubelet_image_pull_duration_seconds. Its buckets, in seconds, and its label's
// values are the kubelet's.
func (s *Set) pullHistogram() *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kubelet_image_pull_duration_seconds",
		Help:    "Duration in seconds of an image's pull, with its waiting, by the image's size.",
		Buckets: []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
	}, []string{"image_size_in_bytes"})
	s.Registry.MustRegister(v)
	return v
}

// ImagePulled counts a pull that has succeeded now: the pods that waited for it, since when it was
// queued, and the image's size in bytes, or 0 if the size is unknown.
func (s *Set) ImagePulled(uids []types.UID, queued time.Time, size uint64) {
	now := time.Now()
	s.runtime.pulls.WithLabelValues(sizeClass(size)).Observe(now.Sub(queued).Seconds())
	s.starts.pulled(uids, span{queued, now})
}

// sizeClass names the class of an image's size.
func sizeClass(size uint64) string {
	const mib, gib = 1 << 20, 1 << 30
	if size == 0 {
		return "N/A"
	}
	for _, class := range []struct {
		above uint64
		name  string
	}{
		{100 * gib, "GT100GB"},
		{60 * gib, "60GB-100GB"},
		{40 * gib, "40GB-60GB"},
		{30 * gib, "30GB-40GB"},
		{20 * gib, "20GB-30GB"},
		{10 * gib, "10GB-20GB"},
		{5 * gib, "5GB-10GB"},
		{gib, "1GB-5GB"},
		{500 * mib, "500MB-1GB"},
		{100 * mib, "100MB-500MB"},
		{10 * mib, "10MB-100MB"},
	} {
		if size > class.above {
			return class.name
		}
	}
	return "0-10MB"
}
