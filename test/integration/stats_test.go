//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/test/env"
)

// TestStats checks that the agent reports what pods use as the kubelet does: more for a busy pod
// than for an idle one, and for each container its memory, layers, logs and volumes.
func TestStats(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	began := time.Now()
	put(t, a, "busy", `
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, "echo hello; dd if=/dev/zero of=/data/f bs=1M count=3; dd if=/dev/zero of=/f bs=1M count=2; trap 'exit 0' TERM; while :; do :; done"]
    resources: {limits: {cpu: 200m, memory: 64Mi}}
    volumeMounts: [{name: data, mountPath: /data}]
volumes:
  - {name: data, emptyDir: {}}
`)
	put(t, a, "idle", `
containers:
  - {name: main, image: berth.local/busybox:v1, command: [sh, -c, "trap 'exit 0' TERM; sleep 1000000 & wait $!"]}
`)
	a.WaitReady(t, "busy", "idle")

	var busy, idle *statsapi.PodStats
	var summary statsapi.Summary
	env.Eventually(t, "the busy pod's disks to be written", func() error {
		summary = statsapi.Summary{}
		if err := json.Unmarshal([]byte(page(t, a, "/stats/summary")), &summary); err != nil {
			return err
		}
		busy, idle = statsOf(&summary, "busy-node"), statsOf(&summary, "idle-node")
		if busy == nil || idle == nil || len(busy.Containers) != 1 || busy.Containers[0].Rootfs == nil {
			return errors.New(asJSON(busy))
		}
		if v := busy.VolumeStats; len(v) != 1 || *v[0].UsedBytes < 3<<20 ||
			*busy.Containers[0].Rootfs.UsedBytes < 2<<20 {
			return errors.New(asJSON(busy))
		}
		// A rate is the mean of a period, which may include the start.
		if c, i := busy.Containers[0].CPU, idle.CPU; c == nil || c.UsageNanoCores == nil || i == nil ||
			i.UsageNanoCores == nil || *c.UsageNanoCores <= *i.UsageNanoCores {
			return fmt.Errorf("cpu: busy %s, idle %s", asJSON(c), asJSON(i))
		}
		if busy.CPU.UsageNanoCores == nil || busy.Containers[0].Logs == nil || busy.ProcessStats == nil ||
			busy.EphemeralStorage == nil || summary.Node.CPU.UsageNanoCores == nil {
			return errors.New(asJSON(summary))
		}
		return nil
	})
	main := busy.Containers[0]
	if *main.CPU.UsageCoreNanoSeconds == 0 || *busy.CPU.UsageNanoCores > uint64(time.Second) {
		t.Errorf("cpu %s", asJSON(busy))
	}
	if m := main.Memory; *m.WorkingSetBytes == 0 || *m.WorkingSetBytes > *m.UsageBytes ||
		*m.AvailableBytes+*m.WorkingSetBytes != 64<<20 {
		t.Errorf("memory %s", asJSON(m))
	}
	if n := busy.Network; n == nil || n.Name != "eth0" {
		t.Errorf("network %s", asJSON(n))
	}
	processes := uint64(2) // the container's, and that of the sandbox
	if e.Native {
		processes = 1
	}
	if *main.Logs.UsedBytes == 0 || *busy.EphemeralStorage.UsedBytes < 5<<20 ||
		*busy.ProcessStats.ProcessCount < processes || main.StartTime.Time.Before(began.Add(-time.Second)) {
		t.Errorf("stats %s", asJSON(busy))
	}
	if n := summary.Node; *n.CPU.UsageNanoCores == 0 || *n.Memory.WorkingSetBytes == 0 || *n.Fs.CapacityBytes == 0 ||
		n.Runtime.ImageFs == nil || *n.Runtime.ImageFs.CapacityBytes == 0 {
		t.Errorf("node %s", asJSON(n))
	}

	for path, wants := range map[string][]string{
		"/metrics": {
			"kubelet_pod_start_total_duration_seconds_count 2", "kubelet_pod_start_sli_duration_seconds_count 2",
			"kubelet_first_network_pod_start_sli_duration_seconds ", "kubelet_mirror_pods 0",
			`kubelet_container_log_filesystem_used_bytes{container="main",namespace="default",pod="busy-node"`,
			`kubelet_cgroup_manager_duration_seconds_count{operation_type="create"}`,
			`operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/empty-dir"} 1`,
		},
		"/metrics/resource": {
			`container_cpu_usage_seconds_total{container="main",namespace="default",pod="busy-node"} `,
			"node_memory_working_set_bytes ", "resource_scrape_error 0",
		},
		"/metrics/cadvisor": {
			`container_memory_rss{container="main",id="/`, `container_network_receive_bytes_total{`,
			"machine_memory_bytes ",
		},
		"/metrics/slis": {`kubernetes_healthcheck{name="syncloop",type="healthz"} 1`},
	} {
		text := page(t, a, path)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %s", path, want)
			}
		}
	}
	env.Eventually(t, "top to put the busy pod first", func() error {
		out, errOut, code := a.CLI("top", "--sort-by", "cpu")
		if rows := strings.Split(out, "\n"); code != 0 || len(rows) < 3 || !strings.Contains(rows[1], "busy-node") ||
			!strings.Contains(rows[2], "idle-node") {
			return fmt.Errorf("code %d, %s%s", code, out, errOut)
		}
		return nil
	})
	if out, errOut, code := a.CLI("top", "node"); code != 0 || !strings.Contains(out, "%") {
		t.Errorf("top node: code %d, %s%s", code, out, errOut)
	}
}

func statsOf(s *statsapi.Summary, name string) *statsapi.PodStats {
	for i := range s.Pods {
		if s.Pods[i].PodRef.Name == name {
			return &s.Pods[i]
		}
	}
	return nil
}

func asJSON(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}
