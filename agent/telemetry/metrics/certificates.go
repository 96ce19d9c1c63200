package metrics

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// day is the unit of most certificates' lifetimes.
const day = 24 * time.Hour

// rotationBuckets are the kubelet's, from a minute to four years.
func rotationBuckets() []float64 {
	var out []float64
	for _, d := range []time.Duration{
		time.Minute, time.Hour, 4 * time.Hour, day, 7 * day, 30 * day, 90 * day, 180 * day, 360 * day, 4 * 360 * day,
	} {
		out = append(out, d.Seconds())
	}
	return out
}

// ClientCertificate adds the metrics of the node's client certificate, if the agent renews it. ends
// returns when the certificate expires, or the zero time while there is none. failed counts a
// renewal that failed. Call ClientCertificate once.
func (s *Set) ClientCertificate(ends func() time.Time) (failed func()) {
	failures := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_certificate_manager_client_expiration_renew_errors",
		Help: "Renewals of the client certificate that failed.",
	})
	s.Registry.MustRegister(failures,
		left("kubelet_certificate_manager_client_ttl_seconds",
			"Seconds until the client certificate is over; +Inf while there is none.", ends))
	return failures.Inc
}

// ServerCertificate does the same for the serving certificate, if the cluster signs it. rotated
// records how long a certificate was in use when another one replaced it.
func (s *Set) ServerCertificate(ends func() time.Time) (failed func(), rotated func(age time.Duration)) {
	failures := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_server_expiration_renew_errors", Help: "Renewals of the serving certificate that failed.",
	})
	ages := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kubelet_certificate_manager_server_rotation_seconds",
		Help:    "How long serving certificates had lived when they were replaced.",
		Buckets: rotationBuckets(),
	})
	s.Registry.MustRegister(failures, ages,
		left("kubelet_certificate_manager_server_ttl_seconds",
			"Seconds until the serving certificate is over; +Inf while there is none.", ends))
	return failures.Inc, func(age time.Duration) { ages.Observe(age.Seconds()) }
}

// left makes a gauge of how many whole seconds are left until a time.
func left(name, help string, until func() time.Time) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		end := until()
		if end.IsZero() {
			return math.Inf(1)
		}
		return math.Trunc(time.Until(end).Seconds())
	})
}

// PodCertificates adds the counts of the certificates that signers of the cluster issue for pods,
// by signer and state. count calls add once for each pair; it is called when metrics are gathered,
// and must be quick and safe for concurrent use. Call PodCertificates once.
func (s *Set) PodCertificates(count func(add func(signer, state string, n int))) {
	s.Registry.MustRegister(podCertificates{count, prometheus.NewDesc("kubelet_podcertificate_states",
		"Certificates of pods' volumes, by signer and state.", []string{"signer_name", "state"}, nil)})
}

// podCertificates is the collector behind [Set.PodCertificates].
type podCertificates struct {
	count func(add func(signer, state string, n int))
	desc  *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c podCertificates) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c podCertificates) Collect(ch chan<- prometheus.Metric) {
	c.count(func(signer, state string, n int) {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), signer, state)
	})
}
