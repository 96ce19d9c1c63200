package stats

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// scrape returns the samples of /metrics/cadvisor of a container, or of a pod where that is empty:
// "NAME{OTHER LABELS} VALUE".
func scrape(t *testing.T, c *Collector, container string) []string {
	t.Helper()
	families, err := c.Cadvisor().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var more []string
			of := map[string]string{}
			for _, l := range m.GetLabel() {
				of[l.GetName()] = l.GetValue()
				if !slices.Contains(cgroupLabels, l.GetName()) {
					more = append(more, l.GetName()+"="+l.GetValue())
				}
			}
			if of["container"] == container && of["pod"] == "web" {
				out = append(out,
					fmt.Sprintf("%s{%s} %v", f.GetName(), strings.Join(more, ","),
						m.GetCounter().GetValue()+m.GetGauge().GetValue()))
			}
		}
	}
	return out
}

func TestDetails(t *testing.T) {
	m := &machine{began: time.Now(), cores: 1}
	cfg := files(t)
	fds := filepath.Join(cfg.Proc, "7", "fd")
	if err := os.MkdirAll(fds, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"0": "/dev/null", "1": "socket:[99]", "2": "pipe:[7]"} {
		if err := os.Symlink(to, filepath.Join(fds, name)); err != nil {
			t.Fatal(err)
		}
	}
	c := collector(cfg, m)
	got := scrape(t, c, "main")
	for _, want := range []string{
		"container_cpu_user_seconds_total{} 2", "container_spec_cpu_period{} 100000",
		"container_spec_cpu_quota{} 20000", "container_spec_memory_limit_bytes{} 1.572864e+07",
		"container_processes{} 2", "container_file_descriptors{} 3", "container_sockets{} 1",
		"container_ulimits_soft{ulimit=max_open_files} 1024",
		"container_fs_reads_total{device=/dev/vda} 3", "container_fs_writes_bytes_total{device=/dev/vda} 4096",
		"container_fs_usage_bytes{device=} 4096",
		"container_blkio_device_usage_total{device=/dev/vda,major=254,minor=0,operation=Write} 4096",
		"container_memory_failures_total{failure_type=pgfault,scope=hierarchy} 0",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
	of := scrape(t, c, "")
	if !slices.Contains(of, "container_spec_memory_limit_bytes{} 1.572864e+07") ||
		slices.Contains(of, "container_file_descriptors{} 3") {
		t.Errorf("of the pod:\n%s", strings.Join(of, "\n"))
	}
}

// TestSummariesShareLayers has clients want whole summaries all the time, for which every shim is
// asked no more often than the runtime measures its layers.
func TestSummariesShareLayers(t *testing.T) {
	cfg := files(t)
	synctest.Test(t, func(t *testing.T) {
		c := collector(cfg, &machine{began: time.Now(), cores: 1})
		asked := &layersAsked{Runtime: c.deps.Runtime}
		c.deps.Runtime = asked
		for range 30 {
			if s := c.Summary(t.Context(), false); s.Pods[0].Containers[0].Rootfs == nil {
				t.Fatal("a summary without the container's layer")
			}
			time.Sleep(time.Second)
		}
		if asked.lists < 3 || asked.lists > 4 {
			t.Errorf("the runtime was asked for layers %d times in half a minute", asked.lists)
		}
	})
}

// layersAsked counts the requests for layers.
type layersAsked struct {
	Runtime
	lists int
}

func (l *layersAsked) ListContainerStats(
	ctx context.Context, filter *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, error) {
	l.lists++
	return l.Runtime.ListContainerStats(ctx, filter)
}

// TestLayersAreAskedForRarely has the runtime, which asks every shim, asked once a minute at most,
// and for a new container every ten seconds.
func TestLayersAreAskedForRarely(t *testing.T) {
	cfg := files(t)
	synctest.Test(t, func(t *testing.T) {
		m := &machine{began: time.Now(), cores: 1}
		c := collector(cfg, m)
		for range 13 { // one minute
			scrape(t, c, "main")
			time.Sleep(5 * time.Second)
		}
		if m.calls.Load() != 2 {
			t.Errorf("asked %d times in a minute", m.calls.Load())
		}
		c.layers.update("", func(map[string]layer) map[string]layer { return nil })
		for range 4 {
			scrape(t, c, "main")
			time.Sleep(time.Second)
		}
		if m.calls.Load() != 2 {
			t.Errorf("asked %d times although it has just been asked", m.calls.Load())
		}
		time.Sleep(layersPeriod)
		if scrape(t, c, "main"); m.calls.Load() != 3 {
			t.Errorf("asked %d times for a new container", m.calls.Load())
		}
	})
}
