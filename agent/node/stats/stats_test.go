package stats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/cgroups"
	"github.com/berthd/berth/internal/pods"
)

// machine is a node with one pod, whose cgroups use cpu as time passes.
type machine struct {
	began time.Time
	// cores is how many cores the container uses, gone that its cgroup is not there any more.
	cores   int
	gone    bool
	runtime error
	calls   atomic.Int32
	// looks counts how often somebody looked for processes of pods.
	looks int
	// imagesAt is where the runtime says it has its images, "/" if it is empty.
	imagesAt string
	// unlimited says that the memory of all pods together has no limit.
	unlimited bool
}

func (m *machine) used() time.Duration { return time.Duration(m.cores) * time.Since(m.began) }

func (m *machine) PodUsage(pod *v1.Pod) (cgroups.Usage, error) {
	if pod.Name != "web" {
		return cgroups.Usage{}, fs.ErrNotExist
	}
	return cgroups.Usage{CPU: m.used() + time.Second, Memory: 30 << 20, WorkingSet: 20 << 20, Processes: 3}, nil
}

func (m *machine) ContainerUsage(_ *v1.Pod, id string) (u cgroups.Usage, path string, err error) {
	if m.gone {
		return u, "", fs.ErrNotExist
	}
	u = cgroups.Usage{CPU: m.used(), Memory: 20 << 20, WorkingSet: 10 << 20, Swap: 1 << 20}
	u.SwapLimit = new(uint64(3 << 20))
	return u, "/kubepods/pod/" + id, nil
}

func (m *machine) Usage(path string) (cgroups.Usage, error) {
	if path == "/" {
		return cgroups.Usage{}, fs.ErrNotExist
	}
	return cgroups.Usage{CPU: m.used()}, nil
}

func (m *machine) Details(path string) (cgroups.Details, error) {
	return cgroups.Details{
		UserCPU:     2 * time.Second,
		CPUPeriod:   100 * time.Millisecond,
		CPUQuota:    20 * time.Millisecond,
		MemoryLimit: m.podsLimit(),
		OOMKills:    1,
		Devices:     []cgroups.DeviceIO{{Major: 254, Reads: 3, WriteBytes: 4096}},
	}, nil
}

// podsLimit is the limit of all pods together.
func (m *machine) podsLimit() uint64 {
	if m.unlimited {
		return 0
	}
	return 15 << 20
}
func (m *machine) Processes(string) []int            { m.looks++; return []int{7, 8} }
func (m *machine) Process(string) (pid int, ok bool) { m.looks++; return 7, true }
func (m *machine) Layout() cgroups.Layout            { return cgroups.Layout{Driver: cgroups.Cgroupfs} }

func (m *machine) ListContainerStats(
	context.Context, *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, error) {
	m.calls.Add(1)
	return []*runtimeapi.ContainerStats{{
		Attributes: &runtimeapi.ContainerAttributes{Id: "abc"},
		WritableLayer: &runtimeapi.FilesystemUsage{
			UsedBytes: &runtimeapi.UInt64Value{Value: 4096}, InodesUsed: &runtimeapi.UInt64Value{Value: 2},
		},
	}}, m.runtime
}

func (m *machine) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	m.calls.Add(1)
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		FsId:      &runtimeapi.FilesystemIdentifier{Mountpoint: cmp.Or(m.imagesAt, "/")},
		UsedBytes: &runtimeapi.UInt64Value{Value: 12345},
	}}}, m.runtime
}

func podsOf(m *machine) []*v1.Pod {
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(m.began)}}
	return []*v1.Pod{
		{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u-web"},
			Spec: v1.PodSpec{
				Containers: []v1.Container{{
					Name: "main",
					Resources: v1.ResourceRequirements{
						Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("15Mi")},
					},
				}},
				Volumes: []v1.Volume{{
					Name: "data",
					VolumeSource: v1.VolumeSource{
						PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"},
					},
				}},
			},
			Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
				{Name: "main", ContainerID: "containerd://abc", Image: "app:v1", State: running},
				{Name: "ended", ContainerID: "containerd://def"},
			}},
		},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "over", UID: "u-over"}},
	}
}

// files are a proc file system, an agent's directories and a pod's logs.
func files(t *testing.T) Config {
	t.Helper()
	dir := t.TempDir()
	for path, text := range map[string]string{
		"proc/stat": "cpu  100 0 50 9999 7 1 2 3 0 0\nbtime 1000\n",
		"proc/meminfo": "MemTotal:  1000 kB\nMemFree:   400 kB\nInactive(file): 100 kB\nAnonPages: 200 kB\n" +
			"SwapTotal: 10 kB\nSwapFree: 4 kB\n",
		"proc/vmstat":             "pgfault 11\npgmajfault 2\nnr_free_pages 1\n",
		"proc/sys/kernel/pid_max": "4194304\n",
		"proc/partitions":         "major minor  #blocks  name\n\n 254        0  262144000 vda\n",
		"proc/7/limits": "Limit                     Soft Limit           Hard Limit           Units\nMax " +
			"open files            1024                 4096                 files\n",
		"proc/loadavg":   "0.1 0.1 0.1 2/345 999\n",
		"proc/self/stat": "1 (a b) c) S 0 1 1 0 -1 0 0 0 0 0 20 10 0 0 20 0 1 0 500 0 25 0\n",
		"proc/7/net/dev": "Inter-|   Receive\n face |bytes\n    lo: 9 9 9 9 9 9 9 9 9 9 9 9\n  net1: 1 1 0 0 " +
			"0 0 0 0 1 1 0 0\n  eth0: 100 2 3 4 0 0 0 0 200 5 6 7 0 0 0 0\n",
		"pods/u-web/volumes/kubernetes.io~empty-dir/tmp/f": strings.Repeat("x", 10000),
		"logs/default_web_u-web/main/0.log":                "hello\n",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Config{Node: "node", RootDir: dir, PodLogsDir: filepath.Join(dir, "logs"), Proc: filepath.Join(dir, "proc")}
}

func collector(cfg Config, m *machine) *Collector {
	return New(cfg, Deps{
		Cgroups: func() Cgroups { return m },
		Runtime: m,
		Pods:    func() []*v1.Pod { return podsOf(m) },
		Logger:  slog.New(slog.DiscardHandler),
	})
}

func TestSummary(t *testing.T) {
	cfg := files(t)
	synctest.Test(t, func(t *testing.T) {
		m := &machine{began: time.Now(), cores: 2}
		c := collector(cfg, m)
		time.Sleep(time.Minute)
		s := c.Summary(t.Context(), true)
		if m.calls.Load() != 0 {
			t.Errorf("for cpu and memory alone the runtime was asked %d times", m.calls.Load())
		}
		if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 {
			t.Fatalf("pods %+v", s.Pods)
		}
		pod, main := s.Pods[0], s.Pods[0].Containers[0]
		for what, got := range map[string]*uint64{
			"pod's":       pod.CPU.UsageNanoCores,
			"container's": main.CPU.UsageNanoCores,
			"pods'":       s.Node.SystemContainers[0].CPU.UsageNanoCores,
		} {
			if got == nil || *got != 2e9 {
				t.Errorf("the %s first rate is %v", what, got)
			}
		}
		if *main.Memory.WorkingSetBytes != 10<<20 || *main.Memory.AvailableBytes != 5<<20 ||
			*pod.Memory.WorkingSetBytes != 20<<20 {
			t.Errorf("memory %+v of %+v", main.Memory, pod.Memory)
		}
		if *main.Swap.SwapUsageBytes != 1<<20 || *main.Swap.SwapAvailableBytes != 2<<20 ||
			pod.Swap.SwapAvailableBytes != nil {
			t.Errorf("swap %+v of %+v", main.Swap, pod.Swap)
		}
		if n := s.Node; *n.Memory.UsageBytes != 600<<10 || *n.Memory.WorkingSetBytes != 500<<10 ||
			*n.Memory.AvailableBytes != 500<<10 ||
			*n.Swap.SwapUsageBytes != 6<<10 || *n.CPU.UsageCoreNanoSeconds != uint64(1530*time.Millisecond) ||
			n.StartTime.Unix() != 1000 {
			t.Errorf("node %+v %+v", n.Memory, n.CPU)
		}
		if k := s.Node.SystemContainers[1]; k.Name != "kubelet" ||
			*k.CPU.UsageCoreNanoSeconds != uint64(300*time.Millisecond) || k.StartTime.Unix() != 1005 ||
			*k.Memory.RSSBytes != uint64(25*os.Getpagesize()) {
			t.Errorf("the agent itself: %+v %+v", k.CPU, k.Memory)
		}
		if pod.VolumeStats != nil || pod.Network != nil || main.Rootfs != nil {
			t.Error("cpu and memory alone has more than that")
		}
	})
}

func TestRates(t *testing.T) {
	cfg := files(t)
	synctest.Test(t, func(t *testing.T) {
		m := &machine{began: time.Now(), cores: 2}
		c := collector(cfg, m)
		rate := func() uint64 { return *c.Summary(t.Context(), true).Pods[0].CPU.UsageNanoCores }
		rate()
		time.Sleep(time.Hour)
		began := time.Now()
		if rate(); time.Since(began) != 0 {
			t.Error("it waits for a rate where one is known")
		}
		m.began, m.cores = time.Now().Add(-m.used()), 1 // the same so far, and from now on one core
		time.Sleep(time.Second)
		if got := rate(); got != 2e9 {
			t.Errorf("a second later the rate is %d", got)
		}
		time.Sleep(time.Minute)
		if got := rate(); got != 1e9 {
			t.Errorf("a minute later the rate is %d", got)
		}
		m.began = time.Now() // another container, counted anew
		if got := c.Summary(t.Context(), true).Pods[0].CPU.UsageNanoCores; got != nil && *got > 2e9 {
			t.Errorf("the rate of what is counted anew is %d", *got)
		}
		m.gone = true
		if s := c.Summary(t.Context(), true); len(s.Pods[0].Containers) != 0 {
			t.Error("a container without a cgroup is told of")
		}
	})
}

func TestSummaryOfDisksAndNetwork(t *testing.T) {
	m := &machine{began: time.Now(), cores: 1}
	c := collector(files(t), m)
	s := c.Summary(t.Context(), false)
	pod := s.Pods[0]
	if n := pod.Network; n == nil || n.Name != "eth0" || *n.RxBytes != 100 || *n.TxErrors != 6 ||
		len(n.Interfaces) != 2 {
		t.Errorf("network %+v", n)
	}
	if len(pod.VolumeStats) != 1 || pod.VolumeStats[0].Name != "tmp" || *pod.VolumeStats[0].UsedBytes < 10000 ||
		*pod.VolumeStats[0].InodesUsed != 2 {
		t.Errorf("volumes %+v", pod.VolumeStats)
	}
	main := pod.Containers[0]
	if *main.Rootfs.UsedBytes != 4096 || *main.Logs.UsedBytes == 0 || *s.Node.Runtime.ImageFs.UsedBytes != 12345 {
		t.Errorf("disks %+v %+v %+v", main.Rootfs, main.Logs, s.Node.Runtime)
	}
	if want := *pod.VolumeStats[0].UsedBytes + *main.Logs.UsedBytes + 4096; *pod.EphemeralStorage.UsedBytes != want {
		t.Errorf("ephemeral storage %d, want %d", *pod.EphemeralStorage.UsedBytes, want)
	}
	if s.Node.Fs == nil || *s.Node.Rlimit.NumOfRunningProcesses != 345 || *pod.ProcessStats.ProcessCount != 3 {
		t.Errorf("node %+v", s.Node.Rlimit)
	}

	m.runtime = errors.New("it hangs")
	if s := c.Summary(t.Context(), false); len(s.Pods) != 1 || s.Pods[0].Containers[0].Rootfs != nil ||
		s.Node.Runtime != nil {
		t.Error("without an answer of the runtime there is no summary")
	}
}

// What a container writes to its hosts file and its termination log is the pod's local storage.
func TestStorageOfThePodsOwnFiles(t *testing.T) {
	cfg := files(t)
	c := collector(cfg, &machine{began: time.Now(), cores: 1})
	wanted := map[types.UID]bool{"u-web": false}
	before := *c.Storage(t.Context(), wanted)["u-web"].EphemeralStorage.UsedBytes
	pod := filepath.Join(cfg.RootDir, "pods/u-web")
	write(t, filepath.Join(pod, "etc-hosts"), strings.Repeat("x", 1<<20))
	if err := os.MkdirAll(filepath.Join(pod, "containers/main"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(pod, "containers/main/0123abcd"), strings.Repeat("x", 1<<20))
	if err := os.Symlink("/", filepath.Join(pod, "containers/main/link")); err != nil {
		t.Fatal(err)
	}
	after := *c.Storage(t.Context(), wanted)["u-web"].EphemeralStorage.UsedBytes
	if after < before+2<<20 {
		t.Errorf("ephemeral storage %d, and %d with files of 2 MiB", before, after)
	}
}

// What a container swaps for a link is not followed, and what it links twice is counted once.
func TestCountStaysBeneath(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "big"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(outside, filepath.Join(dir, "link")),
		os.WriteFile(filepath.Join(dir, "a"), make([]byte, 8192), 0o600),
		os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b"))); err != nil {
		t.Fatal(err)
	}
	got, err := count(dir, nil)
	if err != nil || got.bytes >= 1<<20 || got.bytes < 8192 || got.bytes >= 8192+3*4096 || got.inodes != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := count(filepath.Join(dir, "link"), nil); err != nil {
		t.Errorf("a link to a directory as the root: %v", err)
	}
}

// A count tells its progress, so that a directory that takes long has a size before it is counted.
func TestCountTellsItsProgress(t *testing.T) {
	dir := t.TempDir()
	for i := range 2*progressEvery + progressEvery/2 {
		write(t, filepath.Join(dir, strconv.Itoa(i)), "")
	}
	var told []uint64
	got, err := count(dir, func(so size) error {
		told = append(told, so.inodes)
		return nil
	})
	if err != nil || got.inodes != 2*progressEvery+progressEvery/2+1 || len(told) != 2 || told[0] >= told[1] {
		t.Errorf("%+v, before that inodes %d: %v", got, told, err)
	}
	if _, err := count(dir, func(size) error { return context.Canceled }); !errors.Is(err, context.Canceled) {
		t.Errorf("a count that is to end: %v", err)
	}
}

// What is not counted yet is not 0, and what is being counted takes at least what was counted.
func TestSizesWhileTheyAreCounted(t *testing.T) {
	cfg := files(t)
	synctest.Test(t, func(t *testing.T) {
		c := collector(cfg, &machine{began: time.Now(), cores: 1})
		hang := make(chan struct{})
		keys := []dirKey{
			{"u-web", filepath.Join(cfg.RootDir, "pods/u-web/volumes/kubernetes.io~empty-dir/tmp")},
			{"u-web", filepath.Join(cfg.PodLogsDir, "default_web_u-web/main")},
		}
		for _, key := range keys {
			c.sizes.want(key, time.Hour, func(context.Context) (size, error) {
				<-hang
				return size{bytes: 5, inodes: 1}, nil
			})
		}
		look := func() (volume, logs *statsapi.FsStats, sum uint64) {
			pod := c.Storage(t.Context(), map[types.UID]bool{"u-web": false})["u-web"]
			return &pod.VolumeStats[0].FsStats, pod.Containers[0].Logs, *pod.EphemeralStorage.UsedBytes
		}
		if volume, logs, sum := look(); volume.UsedBytes != nil || logs.UsedBytes != nil || volume.InodesUsed != nil ||
			*volume.CapacityBytes == 0 || sum != 0 {
			t.Errorf("before anything is counted: %+v, %+v, %d", volume, logs, sum)
		}
		for _, key := range keys {
			c.counted(key, size{bytes: 700, inodes: 7})
			c.counted(key, size{bytes: 600, inodes: 6})
		}
		if volume, logs, sum := look(); *volume.UsedBytes != 700 || *logs.InodesUsed != 7 || sum != 1400 {
			t.Errorf("while it is counted: %+v, %+v, %d", volume, logs, sum)
		}
		close(hang)
		synctest.Wait()
		if volume, _, _ := look(); *volume.UsedBytes != 5 {
			t.Errorf("when it is counted: %+v", volume)
		}
	})
}

func TestMetrics(t *testing.T) {
	m := &machine{began: time.Now(), cores: 1}
	c := collector(files(t), m)
	names := map[string]string{}
	for what, gather := range map[string]func() (map[string]int, error){
		"resource": func() (map[string]int, error) { return counts(c, true) },
		"cadvisor": func() (map[string]int, error) { return counts(c, false) },
	} {
		got, err := gather()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for name := range got {
			names[name] = what
		}
	}
	for _, name := range []string{
		"node_cpu_usage_seconds_total", "node_memory_working_set_bytes", "pod_cpu_usage_seconds_total",
		"container_start_time_seconds", "container_swap_limit_bytes", "resource_scrape_error",
		"container_cpu_cfs_throttled_seconds_total", "container_network_receive_bytes_total", "machine_memory_bytes",
		"container_oom_events_total",
	} {
		if names[name] == "" {
			t.Errorf("no metric %s", name)
		}
	}
	if names["scrape_error"] != "" {
		t.Error("scrape_error, which kubelets have ceased to tell")
	}
	c = New(files(t), Deps{
		Cgroups: func() Cgroups { return nil },
		Runtime: m,
		Pods:    func() []*v1.Pod { return podsOf(m) },
		Logger:  slog.New(slog.DiscardHandler),
	})
	if s := c.Summary(t.Context(), true); len(s.Pods) != 0 || s.Node.CPU == nil {
		t.Errorf("before there are cgroups: %+v", s)
	}
}

// namesakes are the pod of [podsOf] as a static pod, after a pod of the API server with its name.
func namesakes(m *machine) []*v1.Pod {
	static := podsOf(m)[0]
	static.Annotations = map[string]string{pods.AnnotationSource: pods.SourceFile}
	tenant := static.DeepCopy()
	tenant.UID, tenant.Annotations[pods.AnnotationSource] = "u-tenant", pods.SourceAPI
	tenant.Status.ContainerStatuses[0].ContainerID = "containerd://ten"
	other := tenant.Status.ContainerStatuses[0]
	other.Name, other.ContainerID = "other", "containerd://oth"
	tenant.Status.ContainerStatuses = append(tenant.Status.ContainerStatuses, other)
	return []*v1.Pod{tenant, static}
}

// flat is a machine without cgroups of pods.
type flat struct{ *machine }

func (flat) PodUsage(*v1.Pod) (cgroups.Usage, error) { return cgroups.Usage{}, fs.ErrNotExist }

// Whoever may make pods at the API server can give one a static pod's name. The metrics that know
// pods by their names are the static pod's, and no metric of the node is missing.
func TestMetricsOfPodsWithOneName(t *testing.T) {
	m := &machine{began: time.Now(), cores: 1}
	cfg := files(t)
	for name, groups := range map[string]Cgroups{"with cgroups of pods": m, "without": flat{m}} {
		c := New(cfg, Deps{
			Cgroups: func() Cgroups { return groups }, Runtime: m, Pods: func() []*v1.Pod { return namesakes(m) },
			Logger: slog.New(slog.DiscardHandler),
		})
		resource, err := counts(c, true)
		if err != nil || resource["pod_cpu_usage_seconds_total"] != 1 ||
			resource["container_cpu_usage_seconds_total"] != 1 {
			t.Errorf("%s, /metrics/resource: %v, %v", name, resource, err)
		}
		if cadvisor, err := counts(c, false); err != nil || cadvisor["container_start_time_seconds"] != 3 {
			t.Errorf("%s, /metrics/cadvisor: %v, %v", name, cadvisor, err)
		}
		if s := c.Summary(t.Context(), true); len(s.Pods) != 2 {
			t.Errorf("%s: %d pods in the summary, which has their UIDs", name, len(s.Pods))
		}
	}
}

// A container with NET_ADMIN names its pod's interfaces, and makes as many as it likes. No name and
// no number of them takes the metrics of the other pods away.
func TestInterfacesThatAPodMakes(t *testing.T) {
	cfg := files(t)
	var text strings.Builder
	add := func(name string) { fmt.Fprintf(&text, "%6s: 1 1 0 0 0 0 0 0 1 1 0 0\n", name) }
	for _, name := range []string{"\xff", "\xfe", "a", "a\u2003", "a\u0085", "{\"", "eth0"} {
		add(name)
	}
	for i := range 1000 {
		add(fmt.Sprintf("dummy%d", i))
	}
	write(t, filepath.Join(cfg.Proc, "7/net/dev"), text.String())
	c := collector(cfg, &machine{began: time.Now(), cores: 1})
	got, err := counts(c, false)
	if err != nil || got["container_network_receive_bytes_total"] != mostLinks {
		t.Errorf("%d interfaces, want %d: %v", got["container_network_receive_bytes_total"], mostLinks, err)
	}
	if n := c.Summary(t.Context(), false).Pods[0].Network; n.Name != defaultLink || len(n.Interfaces) != mostLinks {
		t.Errorf("%d interfaces in the summary, the first of them %q", len(n.Interfaces), n.Name)
	}
}

// A sample that no metric can have takes no other away.
func TestSamplesThatCannotBe(t *testing.T) {
	families, err := gather(func(e *emitter) {
		e.add(podCPU, time.Time{}, 1, "ns", "\xff")
		e.add(podCPU, time.Time{}, 1, "ns", "web")
	}).Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
		t.Errorf("got %v, %v", families, err)
	}
}

// counts returns how many series each metric has.
func counts(c *Collector, isResource bool) (map[string]int, error) {
	g := c.Cadvisor()
	if isResource {
		g = c.Resource()
	}
	families, err := g.Gather()
	out := map[string]int{}
	for _, f := range families {
		out[f.GetName()] = len(f.GetMetric())
	}
	return out, err
}

func TestImageFs(t *testing.T) {
	m := &machine{}
	c := New(Config{}, Deps{Runtime: m})
	fs, err := c.ImageFs(t.Context())
	if err != nil || *fs.UsedBytes != 12345 || *fs.CapacityBytes == 0 || *fs.AvailableBytes == 0 {
		t.Errorf("got %+v, %v", fs, err)
	}
	m.imagesAt = "/no/such/path"
	if fs, err = c.ImageFs(t.Context()); err != nil || *fs.UsedBytes != 12345 || fs.CapacityBytes != nil {
		t.Errorf("of a disk that is not here: %+v, %v", fs, err)
	}
	m.runtime = errors.New("down")
	if _, err = c.ImageFs(t.Context()); !errors.Is(err, m.runtime) {
		t.Errorf("of a runtime that is down: %v", err)
	}
}

// A look at the node and a scrape of /metrics/resource come every few seconds: they do not look for
// processes, which takes longer the more pods there are.
func TestFrequentReadingsLookForNoProcesses(t *testing.T) {
	m := &machine{began: time.Now()}
	c := New(files(t), Deps{
		Cgroups: func() Cgroups { return m }, Runtime: m, Pods: func() []*v1.Pod { return podsOf(m) },
		Logger: slog.New(slog.DiscardHandler),
	})
	c.Node(t.Context())
	if _, err := c.Resource().Gather(); err != nil {
		t.Fatal(err)
	}
	c.Summary(t.Context(), true)
	if m.looks != 0 {
		t.Errorf("%d looks for processes", m.looks)
	}
	c.Summary(t.Context(), false)
	if m.looks == 0 {
		t.Error("the whole summary has looked for no process, and so has no network")
	}
}
