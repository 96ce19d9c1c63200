package stats

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cgroups"
	"github.com/berthd/berth/cri"
)

// disked is a machine whose runtime says where its files are, and remembers for which pods it was
// asked.
type disked struct {
	*machine
	images, layers string
	asked          []string
}

func (d *disked) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	at := func(path string) []*runtimeapi.FilesystemUsage {
		return []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: path}}}
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: at(d.images), ContainerFilesystems: at(d.layers)}, d.runtime
}

func (d *disked) ListContainerStats(
	ctx context.Context, filter *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, error) {
	d.asked = append(d.asked, filter.GetLabelSelector()[cri.LabelPodUID])
	return d.machine.ListContainerStats(ctx, filter)
}

// What the node has left is read without a wait for rates and without a call to a shim.
func TestNode(t *testing.T) {
	cfg := files(t)
	write(t, filepath.Join(cfg.Proc, "sys/kernel/threads-max"), "12345\n")
	synctest.Test(t, func(t *testing.T) {
		m := &disked{machine: &machine{began: time.Now()}, images: cfg.RootDir, layers: cfg.RootDir}
		c := New(cfg, Deps{Cgroups: func() Cgroups { return m }, Runtime: m})
		began := time.Now()
		n := c.Node(t.Context())
		if time.Since(began) != 0 || len(m.asked) != 0 {
			t.Errorf("it took %v, and the shims of %q were asked", time.Since(began), m.asked)
		}
		if *n.Memory.AvailableBytes != 500<<10 || *n.Rlimit.MaxPID != 12345 || *n.Rlimit.NumOfRunningProcesses != 345 {
			t.Errorf("memory %d, of %d process ids %d", *n.Memory.AvailableBytes, *n.Rlimit.MaxPID,
				*n.Rlimit.NumOfRunningProcesses)
		}
		if pods := n.SystemContainers[0]; pods.Name != "pods" || *pods.Memory.AvailableBytes != 15<<20 {
			t.Errorf("the pods have %d bytes left of their limit", *pods.Memory.AvailableBytes)
		}
		m.unlimited = true
		if pods := c.Node(t.Context()).SystemContainers[0]; pods.Memory.AvailableBytes == nil ||
			*pods.Memory.AvailableBytes != 1000<<10 {
			t.Errorf("without a limit the pods have %v bytes left", pods.Memory.AvailableBytes)
		}
		if n.Fs == nil || n.Runtime.ImageFs == nil || n.Runtime.ContainerFs == nil {
			t.Errorf("file systems %v %v", n.Fs, n.Runtime)
		}
	})
}

// Which file systems are one is told by their devices.
func TestDisks(t *testing.T) {
	cfg := files(t)
	var proc, own unix.Stat_t
	if unix.Stat("/proc", &proc) != nil || unix.Stat(cfg.RootDir, &own) != nil || proc.Dev == own.Dev {
		t.Skip("this needs a second file system")
	}
	for name, c := range map[string]struct {
		images, layers string
		fails          error
		want           *Disks
	}{
		"one":                  {cfg.RootDir, cfg.RootDir, nil, &Disks{}},
		"images apart":         {"/proc", "/proc", nil, &Disks{ImageFs: true}},
		"images without layer": {"/proc", cfg.RootDir, nil, &Disks{ImageFs: true, SplitFs: true}},
		"layers not told":      {"/proc", "", nil, &Disks{ImageFs: true}},
		"images nowhere":       {"/no/such/folder", cfg.RootDir, nil, nil},
		"the runtime hangs":    {cfg.RootDir, cfg.RootDir, errors.New("it hangs"), nil},
	} {
		m := &disked{machine: &machine{began: time.Now(), runtime: c.fails}, images: c.images, layers: c.layers}
		got := collector(cfg, m.machine)
		got.deps.Runtime = m
		if d := got.Node(t.Context()).Disks; (d == nil) != (c.want == nil) || d != nil && *d != *c.want {
			t.Errorf("%s: %+v, want %+v", name, d, c.want)
		}
	}
}

// Only the pods that are asked for are measured, and only the shims of those whose layers matter
// are asked.
func TestStorage(t *testing.T) {
	cfg := files(t)
	m := &disked{machine: &machine{began: time.Now()}, images: cfg.RootDir, layers: cfg.RootDir}
	c := collector(cfg, m.machine)
	c.deps.Runtime = m
	if got := c.Storage(t.Context(), nil); len(got) != 0 || len(m.asked) != 0 {
		t.Errorf("nobody was asked for: %v, and the shims of %q were asked", got, m.asked)
	}
	got := c.Storage(t.Context(), map[types.UID]bool{"u-web": false})
	if len(got) != 1 || got["u-web"] == nil || len(m.asked) != 0 {
		t.Fatalf("pods %v, and the shims of %q were asked", got, m.asked)
	}
	web := got["u-web"]
	if *web.VolumeStats[0].UsedBytes < 10000 || *web.Containers[0].Logs.UsedBytes == 0 || web.Containers[0].Rootfs != nil {
		t.Errorf("volumes %+v, containers %+v", web.VolumeStats, web.Containers)
	}
	got = c.Storage(t.Context(), map[types.UID]bool{"u-web": true})
	if layer := got["u-web"].Containers[0].Rootfs; layer == nil || *layer.UsedBytes != 4096 {
		t.Errorf("the layer takes %v", layer)
	}
	if !slices.Equal(m.asked, []string{"u-web"}) {
		t.Errorf("the shims of %q were asked", m.asked)
	}
	c.deps.Pods = func() []*v1.Pod { return nil }
	c.Storage(t.Context(), map[types.UID]bool{"u-web": true})
	if n := len(c.sizes.known); n != 0 {
		t.Errorf("%d sizes of a pod that is gone are remembered", n)
	}
}

// withoutPods is a node without cgroups of pods.
type withoutPods struct{ *disked }

func (withoutPods) PodUsage(*v1.Pod) (cgroups.Usage, error) {
	return cgroups.Usage{}, fs.ErrNotExist
}

// Without cgroupsPerQOS, a pod uses what its containers use, and its local storage counts, also
// that of containers whose cgroups are nowhere.
func TestWithoutCgroupsOfPods(t *testing.T) {
	cfg := files(t)
	m := withoutPods{&disked{machine: &machine{began: time.Now()}, images: cfg.RootDir, layers: cfg.RootDir}}
	c := collector(cfg, m.machine)
	c.deps.Runtime, c.deps.Cgroups = m, func() Cgroups { return m }
	s := c.Summary(t.Context(), true)
	if len(s.Pods) != 1 || *s.Pods[0].Memory.WorkingSetBytes != 10<<20 || len(s.Pods[0].Containers) != 1 {
		t.Errorf("pods %+v", s.Pods)
	}
	families, err := c.Cadvisor().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, sample := range f.GetMetric() {
			id, of := "", ""
			for _, l := range sample.GetLabel() {
				switch l.GetName() {
				case "id":
					id = l.GetValue()
				case "pod":
					of = l.GetValue()
				}
			}
			if f.GetName() == "container_memory_usage_bytes" && of == "web" && id != "/kubepods/pod/abc" {
				t.Errorf("the pod has the metrics of the cgroup %q", id)
			}
		}
	}
	m.gone = true
	web := c.Storage(t.Context(), map[types.UID]bool{"u-web": true})["u-web"]
	if web == nil || *web.VolumeStats[0].UsedBytes < 10000 || len(web.Containers) != 1 ||
		*web.Containers[0].Logs.UsedBytes == 0 || *web.Containers[0].Rootfs.UsedBytes != 4096 {
		t.Errorf("local storage %+v", web)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
