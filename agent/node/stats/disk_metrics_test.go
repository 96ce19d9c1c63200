package stats

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// Each container that has written logs has its metric, with the kubelet's labels.
func TestLogMetrics(t *testing.T) {
	cfg := files(t)
	synctest.Test(t, func(t *testing.T) {
		m := &machine{}
		c := New(cfg, Deps{
			Cgroups: func() Cgroups { return nil }, Runtime: m, Logger: slog.New(slog.DiscardHandler),
			Pods: func() []*v1.Pod { return podsOf(m) },
		})
		c.diskStats()
		time.Sleep(2 * patience) // the sizes are read beside the scrape
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(c.DiskMetrics())
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "kubelet_container_log_filesystem_used_bytes" {
				continue
			}
			if len(f.GetMetric()) != 1 || f.GetMetric()[0].GetGauge().GetValue() <= 0 {
				t.Errorf("metrics: %v", f.GetMetric())
			}
			labels := map[string]string{}
			for _, l := range f.GetMetric()[0].GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["uid"] != "u-web" || labels["container"] != "main" || labels["pod"] != "web" {
				t.Errorf("labels: %v", labels)
			}
			return
		}
		t.Error("no metric of logs")
	})
}
