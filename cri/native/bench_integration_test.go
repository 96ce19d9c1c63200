//go:build integration

package native

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cni"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/remote"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// BenchmarkPod measures how long a pod of one container takes from its run to its start: by
// containerd's CRI plugin, and by this package without and with pause processes. They take turns,
// so that they share the machine's moods. It reports medians, and their ratios to the plugin's.
func BenchmarkPod(b *testing.B) {
	e := env.Containerd(b, env.Options{})
	plugin, err := remote.Dial(b.Context(), remote.Config{Endpoint: e.Endpoint})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = plugin.Close() })
	own := func(mode PauseMode) cri.Runtime {
		return newHostOn(b, e, "native-bench-"+string(mode)).runtime(b, func(c *Config, n *cni.Config) {
			c.Pause = mode
			c.RootDir = filepath.Join(e.Dir, "bench", string(mode), "root")
			c.StateDir = filepath.Join(e.Dir, "bench", string(mode), "state")
			n.StateDir = filepath.Join(c.RootDir, "cni")
		})
	}
	columns := []struct {
		name  string
		rt    cri.Runtime
		times []time.Duration
	}{{"plugin", plugin, nil}, {"auto", own(PauseAuto), nil}, {"always", own(PauseAlways), nil}}
	logs := b.TempDir()
	for n := 0; b.Loop(); n++ {
		for i := range columns {
			c := &columns[i]
			took, err := startPod(b.Context(), c.rt, e.CgroupRoot, logs, fmt.Sprintf("bench-%d", n))
			if err != nil {
				b.Fatalf("%s: %v", c.name, err)
			}
			c.times = append(c.times, took)
		}
	}
	median := func(times []time.Duration) float64 {
		slices.Sort(times)
		return float64(times[len(times)/2].Microseconds()) / 1000
	}
	for _, c := range columns {
		b.ReportMetric(median(c.times), c.name+"-ms")
		b.ReportMetric(median(c.times)/median(columns[0].times), c.name+"/plugin")
	}
}

// startPod runs a pod, removes it, and returns how long it took to its start.
func startPod(ctx context.Context, rt cri.Runtime, cgroup, logs, name string) (time.Duration, error) {
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "bench", Uid: name},
		LogDirectory: logs, Hostname: name,
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: cgroup,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}
	began := time.Now()
	sandbox, err := rt.RunPodSandbox(ctx, config, "")
	if err != nil {
		return 0, err
	}
	if _, err := rt.PodSandboxStatus(ctx, sandbox); err != nil {
		return 0, err
	}
	container, err := rt.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: images.Busybox},
		Command: []string{"sleep", "1000"}, LogPath: name + ".log",
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}, config)
	if err != nil {
		return 0, err
	}
	if err := rt.StartContainer(ctx, container); err != nil {
		return 0, err
	}
	took := time.Since(began)
	if err := rt.StopPodSandbox(ctx, sandbox); err != nil {
		return 0, err
	}
	return took, rt.RemovePodSandbox(ctx, sandbox)
}
