package stats

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cgroups"
	"github.com/berthd/berth/internal/pods"
)

// benchPods is the number of pods that BenchmarkAnswer measures.
const benchPods = 100

// BenchmarkAnswer measures the answers to the scrapes of a node with 100 pods, as text. Each pod
// has cgroups of the kernel, a process in a network namespace of its own, a volume and logs; only
// the runtime is not real. cpu-ms/op is the process's CPU time for one answer: an answer of 10 ms
// costs 0.1 % of a core if it is asked for every 10 seconds. The benchmark needs root.
func BenchmarkAnswer(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root: makes cgroups on this host")
	}
	c, _ := crowd(b, benchPods)
	for name, answer := range map[string]func() error{
		"summary":     func() error { _, err := json.Marshal(c.Summary(b.Context(), false)); return err },
		"cpu-memory":  func() error { _, err := json.Marshal(c.Summary(b.Context(), true)); return err },
		"resource":    func() error { return metricsText(c) },
		"node's look": func() error { c.Node(b.Context()); return nil },
		"glance":      func() error { c.Glance(); return nil },
	} {
		if err := answer(); err != nil { // the first has no rates yet, and measures directories
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			began := used(b)
			for b.Loop() {
				if err := answer(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((used(b)-began).Seconds()*1e3/float64(b.N), "cpu-ms/op")
		})
	}
}

// metricsText writes the metrics of /metrics/resource.
func metricsText(c *Collector) error {
	families, err := c.Resource().Gather()
	if err != nil {
		return err
	}
	var out strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
			return err
		}
	}
	return nil
}

// used returns the CPU time that this process has used.
func used(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// quiet is a runtime that answers at once that no container has written anything.
type quiet []string

func (q quiet) ListContainerStats(
	context.Context, *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, error) {
	var out []*runtimeapi.ContainerStats
	for _, id := range q {
		out = append(out, &runtimeapi.ContainerStats{
			Attributes:    &runtimeapi.ContainerAttributes{Id: id},
			WritableLayer: &runtimeapi.FilesystemUsage{UsedBytes: &runtimeapi.UInt64Value{}},
		})
	}
	return out, nil
}

func (quiet) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/"}, UsedBytes: &runtimeapi.UInt64Value{Value: 1},
	}}}, nil
}

// crowd makes n pods and returns their collector, and their cgroups' paths. The test's end removes
// them.
func crowd(b testing.TB, n int) (c *Collector, paths []string) {
	b.Helper()
	m, err := cgroups.New(cgroups.Config{
		Driver: cgroups.Cgroupfs, Root: fmt.Sprintf("/berth-test-%d", os.Getpid()), CgroupsPerQOS: true,
	}, cgroups.Deps{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx := context.Background()
		for i := range n {
			if err := m.RemovePod(ctx, uid(i)); err != nil {
				b.Errorf("remove the cgroup of a pod: %v", err)
			}
		}
		if err := m.Teardown(ctx); err != nil {
			b.Errorf("remove the cgroups: %v", err)
		}
	})
	if err := m.Setup(b.Context()); err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	var list []*v1.Pod
	var ids quiet
	for i := range n {
		id := fmt.Sprintf("%064x", i)
		pod := inCrowd(b, m, i, id)
		volume := filepath.Join(dir, "pods", string(pod.UID), "volumes/kubernetes.io~empty-dir/data")
		logs := filepath.Join(dir, "logs", fmt.Sprintf("default_%s_%s", pod.Name, pod.UID), "main")
		for _, made := range []string{volume, logs} {
			if err := os.MkdirAll(made, 0o755); err != nil {
				b.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(made, "0.log"), []byte("text\n"), 0o600); err != nil {
				b.Fatal(err)
			}
		}
		list, ids = append(list, pod), append(ids, id)
		paths = append(paths, m.Layout().PodPath(pod.UID, cgroups.QOSClass(pod)))
	}
	return New(Config{Node: "node", RootDir: dir, PodLogsDir: filepath.Join(dir, "logs")}, Deps{
		Cgroups: func() Cgroups { return m }, Runtime: ids, Pods: func() []*v1.Pod { return list },
		Logger: slog.New(slog.DiscardHandler),
	}), paths
}

// uid returns the UID of a pod of the crowd.
func uid(i int) types.UID { return types.UID("u-" + strconv.Itoa(i)) }

// inCrowd makes a pod's cgroup, that of its only container with this id, and a process in it.
func inCrowd(b testing.TB, m *cgroups.Manager, i int, id string) *v1.Pod {
	b.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "pod-" + strconv.Itoa(i), UID: uid(i),
			Annotations: map[string]string{pods.AnnotationSource: pods.SourceAPI},
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}},
		Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "main", ContainerID: "containerd://" + id, Image: "app:v1",
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}},
	}
	parent, err := m.EnsurePod(b.Context(), pod)
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command("sleep", "3600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	above, err := filepath.Glob(filepath.Join("/sys/fs/cgroup", "*", parent))
	if err != nil {
		b.Fatal(err)
	}
	if unified := filepath.Join("/sys/fs/cgroup", parent); len(above) == 0 {
		above = []string{unified}
	}
	for _, dir := range above {
		own := filepath.Join(dir, id)
		if err := os.MkdirAll(own, 0o755); err != nil {
			b.Fatal(err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if value, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				_ = os.WriteFile(filepath.Join(own, file), value, 0)
			}
		}
		if err := os.WriteFile(filepath.Join(own, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			b.Fatal(err)
		}
	}
	return pod
}
