package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// starts measures how long pods take from their creation until all their containers run. What is
// measured, and which pods count, is upstream's definition of the pod startup SLI
// (kubernetes/community, sig-scalability/slos/pod_startup_latency.md).
type starts struct {
	total, sli prometheus.Histogram
	// first has the SLI of the node's first pod with a network of its own.
	first prometheus.Gauge

	mu sync.Mutex
	// pods has the pods that have not run yet, with the times at which each waited for images.
	pods map[types.UID][]span
	// networked says that first is set.
	networked bool
}

// span is a time from one moment to another.
type span struct{ from, to time.Time }

func (s *Set) newStarts() *starts {
	buckets := []float64{
		.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
	}
	m := &starts{
		total: s.histogramOf("kubelet_pod_start_total_duration_seconds",
			"Duration in seconds from a pod's creation until all its containers ran and, in a cluster, the API server "+
				"knew.", buckets),
		sli: s.histogramOf("kubelet_pod_start_sli_duration_seconds",
			"kubelet_pod_start_total_duration_seconds without the time for image pulls and init containers, of pods "+
				"without persistent volumes.", buckets),
		first: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_first_network_pod_start_sli_duration_seconds",
			Help: "kubelet_pod_start_sli_duration_seconds of the first pod with a network of its own.",
		}),
		pods: map[types.UID][]span{},
	}
	s.Registry.MustRegister(m.first)
	return m
}

// PodStarts says that the start of a pod begins, so that it is measured.
func (s *Set) PodStarts(uid types.UID) {
	s.starts.mu.Lock()
	defer s.starts.mu.Unlock()
	s.starts.pods[uid] = nil
}

// pulled says that pods waited for the pull of an image.
func (m *starts) pulled(uids []types.UID, waited span) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range uids {
		if spans, starting := m.pods[uid]; starting {
			m.pods[uid] = append(spans, waited)
		}
	}
}

// PodStatus records the duration of a pod's start once a status says that all containers run. pod
// has been there since created. In a cluster, PodStatus is to be called with what the API server
// has.
func (s *Set) PodStatus(pod *v1.Pod, st *v1.PodStatus, created time.Time) {
	m := s.starts
	m.mu.Lock()
	defer m.mu.Unlock()
	pulls, starting := m.pods[pod.UID]
	if !starting || !allRun(st) {
		return
	}
	delete(m.pods, pod.UID)
	took := time.Since(created)
	m.total.Observe(max(took, 0).Seconds())
	if persistent(pod) {
		return
	}
	took = max(took-sum(pulls, created)-initTime(st), 0)
	m.sli.Observe(took.Seconds())
	if !pod.Spec.HostNetwork && !m.networked {
		m.networked = true
		m.first.Set(took.Seconds())
	}
}

// forget drops a pod that ended before all its containers ran.
func (m *starts) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
}

// allRun reports whether all app containers run.
func allRun(st *v1.PodStatus) bool {
	return len(st.ContainerStatuses) > 0 && !slices.ContainsFunc(st.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.State.Running == nil || c.State.Running.StartedAt.IsZero()
	})
}

// persistent reports whether a pod has volumes that are more than a copy of objects or a directory
// of its own.
func persistent(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil && v.Projected == nil
	})
}

// sum returns how long the spans last together since begin. What is in several spans counts once.
func sum(spans []span, begin time.Time) time.Duration {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	whole, last := time.Duration(0), begin
	for _, s := range spans {
		if s.from.Before(last) {
			s.from = last
		}
		if s.to.After(s.from) {
			whole += s.to.Sub(s.from)
			last = s.to
		}
	}
	return whole
}

// initTime returns how long the init containers took that have ended; sidecars run on.
func initTime(st *v1.PodStatus) time.Duration {
	var whole time.Duration
	for i := range st.InitContainerStatuses {
		if ended := st.InitContainerStatuses[i].State.Terminated; ended != nil {
			whole += max(ended.FinishedAt.Sub(ended.StartedAt.Time), 0)
		}
	}
	return whole
}
