package eviction

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/agent/node/stats"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// node is a node whose usage and pods a test sets. It notes what the manager does.
type node struct {
	t     *testing.T
	begin time.Time

	mu sync.Mutex
	// memory and disk are what is left of 1000 bytes each.
	memory, disk uint64
	disks        *stats.Disks
	pods         map[types.UID]worker.Entry
	usage        map[types.UID]uses
	// endsAfter is how long a pod takes to end; below 0 it does not end.
	endsAfter time.Duration
	// frees is how much memory the end of a pod frees.
	frees uint64
	notes []string
	// places is how many pods the node has room for.
	places int
	// cleared are the evicted pods whose containers were removed.
	cleared map[types.UID]bool
	// asked counts the questions about the usage of pods, looked those about the node.
	asked, looked int
	// glances says that a glance sees what the node has.
	glances bool
}

func (n *node) note(format string, args ...any) {
	at := time.Since(n.begin).Round(time.Second)
	n.notes = append(n.notes, fmt.Sprintf("%s: ", at)+fmt.Sprintf(format, args...))
}

// said returns the notes since the last call.
func (n *node) said() string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	out := strings.Join(n.notes, "\n")
	n.notes = nil
	return out
}

func (n *node) want(what string, lines ...string) {
	n.t.Helper()
	if got := n.said(); got != strings.Join(lines, "\n") {
		n.t.Errorf("%s:\n%s\nwant\n%s", what, got, strings.Join(lines, "\n"))
	}
}

func (n *node) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func (n *node) Node(context.Context) stats.NodeUsage {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looked++
	return n.left()
}

func (n *node) Glance() stats.NodeUsage {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.glances {
		return stats.NodeUsage{}
	}
	return n.left()
}

// left is what the node has left. The lock is held.
func (n *node) left() stats.NodeUsage {
	memory, disk, whole, now := n.memory, n.disk, uint64(1000), statsapi.FsStats{}.Time
	now.Time = time.Now()
	used := whole - memory
	return stats.NodeUsage{Disks: n.disks, NodeStats: statsapi.NodeStats{
		Memory: &statsapi.MemoryStats{Time: now, AvailableBytes: &memory, WorkingSetBytes: &used},
		Fs:     &statsapi.FsStats{Time: now, AvailableBytes: &disk, CapacityBytes: &whole},
	}}
}

func (n *node) Summary(context.Context, bool) *statsapi.Summary {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := &statsapi.Summary{}
	for uid, u := range n.usage {
		s := using(podOf("", 0, "", ""), u).stats
		s.PodRef.UID = string(uid)
		out.Pods = append(out.Pods, *s)
	}
	return out
}

func (n *node) Storage(_ context.Context, layers map[types.UID]bool) map[types.UID]*statsapi.PodStats {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	out := map[types.UID]*statsapi.PodStats{}
	for uid := range layers {
		if u, ok := n.usage[uid]; ok {
			out[uid] = using(podOf("", 0, "", ""), u).stats
		}
	}
	return out
}

func (n *node) List() map[types.UID]worker.Entry {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.pods)
}

func (n *node) Get(uid types.UID) (worker.Entry, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e, ok := n.pods[uid]
	return e, ok
}

func (n *node) Stop(uid types.UID, stop worker.Stop) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.note("stop %s (%s) within %d s: %s", uid, stop.Cause, *stop.Grace, stop.Message)
	e := n.pods[uid]
	stop.Since = time.Now()
	e.Phase, e.Stop = worker.Terminating, &stop
	n.pods[uid] = e
	if n.endsAfter < 0 {
		return
	}
	time.AfterFunc(n.endsAfter, func() {
		n.set(func() {
			e.Phase = worker.Terminated
			n.pods[uid] = e
			n.memory = min(n.memory+n.frees, 1000)
		})
	})
}

func (n *node) Remove(uid types.UID) {
	n.set(func() {
		n.note("remove %s", uid)
		delete(n.pods, uid)
	})
}

func (n *node) Annotated(pod *v1.Pod, annotations map[string]string, kind, reason, _ string) {
	n.set(func() { n.note("%s %s of %s, short of %q", kind, reason, pod.UID, annotations[keyStarved]) })
}

func (n *node) Event(kind, reason, message string) {
	n.set(func() { n.note("%s %s: %s", kind, reason, message) })
}

// recorded has the node's events and metrics.
type recorded struct{ *node }

func (r recorded) Node(kind, reason, message string)       { r.Event(kind, reason, message) }
func (r recorded) Evicted(signal string)                   { r.set(func() { r.note("counted %s", signal) }) }
func (r recorded) EvictionStatsAge(string, time.Duration)  {}
func (n *node) DeleteUnusedImages(context.Context) error   { return n.reclaim("images") }
func (n *node) DeleteDeadContainers(context.Context) error { return n.reclaim("containers") }

// DeleteContainersOf frees 60 bytes of disk the first time.
func (n *node) DeleteContainersOf(_ context.Context, uid types.UID) error {
	n.set(func() {
		n.note("reclaim containers of %s", uid)
		if !n.cleared[uid] {
			n.disk += 60
		}
		n.cleared[uid] = true
	})
	return nil
}

// reclaim frees 40 bytes of disk.
func (n *node) reclaim(what string) error {
	n.set(func() {
		n.note("reclaim %s", what)
		n.disk += 40
	})
	return nil
}

// add adds a running pod of the API server.
func (n *node) add(uid string, priority int32, u uses) *v1.Pod {
	pod := podOf(uid, priority, "", "")
	pod.UID, pod.Annotations = types.UID(uid), map[string]string{pods.AnnotationSource: pods.SourceAPI}
	n.set(func() {
		n.pods[pod.UID] = worker.Entry{Pod: pod}
		n.usage[pod.UID] = u
	})
	return pod
}

// run gives fn a node with a manager, in fake time.
func run(t *testing.T, cfg Config, fn func(n *node, p *Pressure, wake notify.Signal)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &node{
			t: t, begin: time.Now(), memory: 500, disk: 500, disks: &stats.Disks{}, endsAfter: 2 * time.Second,
			pods: map[types.UID]worker.Entry{}, usage: map[types.UID]uses{},
			cleared: map[types.UID]bool{},
		}
		pressure := &Pressure{}
		m := New(cfg, Deps{
			Stats: n, Pods: n, Allocated: func(pod *v1.Pod) *v1.Pod { return pod }, Pressure: pressure,
			Changed: func() {
				n.set(func() { n.note("pressure %v", pressure.Conditions()) })
			},
			Fitting: func(list []*v1.Pod) []*v1.Pod {
				n.mu.Lock()
				defer n.mu.Unlock()
				return list[:min(n.places, len(list))]
			},
			Again:     func() { n.set(func() { n.note("again") }) },
			Reclaimer: n, Events: recorded{n}, Metrics: recorded{n}, Logger: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		time.Sleep(300 * time.Millisecond) // what a test does comes between the manager's looks
		synctest.Wait()
		fn(n, pressure, m.wake)
		cancel()
		<-done
	})
}

// memoryAt is a config with a hard threshold of memory.
func memoryAt(least string) Config {
	return Config{
		Thresholds: []Threshold{{Signal: MemoryAvailable, Least: amount(least)}}, Transition: 5 * time.Minute,
		StorageLimits: true, Cluster: true,
	}
}

// At most one pod is asked to leave at a time. The next look comes when it has ended.
func TestOnePodAtATime(t *testing.T) {
	run(t, memoryAt("100"), func(n *node, p *Pressure, _ notify.Signal) {
		n.add("a", 0, uses{memory: 300})
		n.add("b", 0, uses{memory: 600})
		n.add("c", 0, uses{memory: 1})
		n.want("enough")
		n.set(func() { n.memory, n.frees = 10, 60 })
		time.Sleep(10 * time.Second)
		stop := func(at, uid, left, used string) []string {
			return []string{
				at + ": Warning EvictionThresholdMet: Attempting to reclaim memory",
				at + ": Warning Evicted of " + uid + `, short of "memory"`,
				at + ": stop " + uid + " (Evicted) within 1 s: The node was low on resource: memory. " +
					"Threshold quantity: 100, available: " + left + ". Container app was using " + used +
					", request is 0, has larger consumption of memory. ",
				at + ": counted memory.available",
			}
		}
		n.want("first", append([]string{"10s: pressure [MemoryPressure]"}, stop("10s", "b", "10", "600")...)...)
		time.Sleep(2 * time.Second)
		n.want("second", stop("12s", "a", "70", "300")...)
		time.Sleep(4 * time.Minute)
		n.want("enough again")
		if got := fmt.Sprint(p.Conditions()); got != "[MemoryPressure]" {
			t.Errorf("conditions %s within the transition period", got)
		}
		time.Sleep(time.Minute + 10*time.Second)
		n.want("the transition period is over", "5m14s: pressure []")
	})
}

// A threshold that is crossed between two looks is acted on at the next glance, once: while it
// stays met, the node is looked at as often as before.
func TestGlance(t *testing.T) {
	run(t, memoryAt("100"), func(n *node, _ *Pressure, _ notify.Signal) {
		n.add("a", 0, uses{memory: 300})
		n.set(func() { n.glances, n.memory, n.endsAfter = true, 10, -1 })
		time.Sleep(glance)
		if got := n.said(); !strings.Contains(got, "3s: stop a") {
			t.Errorf("after a glance:\n%s", got)
		}
		time.Sleep(endLimit)
		n.set(func() { n.looked = 0 })
		time.Sleep(period)
		n.set(func() {
			if n.looked > 1 {
				t.Errorf("%d looks in %s at a node that still lacks memory", n.looked, period)
			}
		})
	})
}

// A pod that does not end holds up the next eviction for 30 s, and is not chosen again.
func TestPodThatDoesNotEnd(t *testing.T) {
	run(t, memoryAt("100"), func(n *node, _ *Pressure, _ notify.Signal) {
		n.add("a", 0, uses{memory: 300})
		n.add("b", 0, uses{memory: 600})
		n.set(func() { n.memory, n.endsAfter = 10, -1 })
		time.Sleep(39 * time.Second)
		if got := n.said(); strings.Count(got, "stop b") != 1 || strings.Contains(got, "stop a") {
			t.Errorf("within 30 s:\n%s", got)
		}
		time.Sleep(2 * time.Second)
		if got := n.said(); strings.Count(got, "stop a") != 1 || strings.Contains(got, "stop b") {
			t.Errorf("after 30 s:\n%s", got)
		}
		time.Sleep(time.Minute)
		if got := n.said(); strings.Contains(got, "stop") {
			t.Errorf("with nobody left:\n%s", got)
		}
	})
}

// A soft threshold gives its pods their own grace, bounded by the config; a hard one that is met
// meanwhile cuts it short.
func TestGraces(t *testing.T) {
	cfg := memoryAt("100")
	cfg.MaxGrace = 20
	cfg.Thresholds = append(cfg.Thresholds, Threshold{Signal: MemoryAvailable, Least: amount("200"), Grace: time.Minute})
	run(t, cfg, func(n *node, _ *Pressure, _ notify.Signal) {
		long, short := n.add("long", 0, uses{memory: 600}), n.add("short", 0, uses{memory: 300})
		seconds := int64(5)
		short.Spec.TerminationGracePeriodSeconds = &seconds
		n.set(func() { n.memory, n.endsAfter = 150, -1 })
		time.Sleep(65 * time.Second)
		if got := n.said(); strings.Contains(got, "stop") {
			t.Errorf("within the grace period of the threshold:\n%s", got)
		}
		time.Sleep(10 * time.Second)
		if got := n.said(); strings.Count(got, "stop") != 1 || !strings.Contains(got, "stop long (Evicted) within 20 s") {
			t.Errorf("after it:\n%s", got)
		}
		time.Sleep(30 * time.Second)
		if got := n.said(); strings.Count(got, "stop") != 1 || !strings.Contains(got, "stop short (Evicted) within 5 s") {
			t.Errorf("the next one:\n%s", got)
		}
		n.set(func() { n.memory = 50 })
		time.Sleep(30 * time.Second)
		if got := n.said(); strings.Count(got, "stop") != 1 || !strings.Contains(got, "stop long (Evicted) within 1 s") {
			t.Errorf("under the hard threshold %s:\n%s", long.UID, got)
		}
	})
}

// Critical pods stay. What is critical depends on whether there is a cluster.
func TestCriticalPodsStay(t *testing.T) {
	for cluster, want := range map[bool]string{true: "plain", false: "static plain"} {
		cfg := memoryAt("100")
		cfg.Cluster = cluster
		run(t, cfg, func(n *node, _ *Pressure, _ notify.Signal) {
			n.add("plain", 0, uses{memory: 1})
			n.add("critical", pods.Critical, uses{memory: 900})
			for _, name := range []string{"static", "static-critical"} {
				pod := n.add(name, 0, uses{memory: 500})
				pod.Annotations[pods.AnnotationSource] = pods.SourceFile
				if name != "static" {
					pod.Spec.Priority, pod.Spec.PriorityClassName = nil, "system-node-critical"
				}
			}
			n.add("found", 0, uses{}).Spec.Containers = nil // known only from the runtime
			n.set(func() { n.memory = 10 })
			time.Sleep(time.Minute)
			got := ""
			for line := range strings.Lines(n.said()) {
				if _, rest, ok := strings.Cut(line, ": stop "); ok {
					uid, _, _ := strings.Cut(rest, " ")
					got += uid + " "
				}
			}
			if got = strings.TrimSpace(got); got != want {
				t.Errorf("in a cluster %t: %s left, want %s", cluster, got, want)
			}
		})
	}
}

// What the node itself can give back goes first. Pods leave only if that is not enough.
func TestReclaimBeforePods(t *testing.T) {
	cfg := Config{
		Thresholds: []Threshold{{Signal: NodeFsAvailable, Least: amount("100"), Reclaim: amount("50")}},
		Transition: 5 * time.Minute, Cluster: true,
	}
	reclaims := []string{
		"10s: pressure [DiskPressure]",
		"10s: Warning EvictionThresholdMet: Attempting to reclaim ephemeral-storage",
		"10s: reclaim containers", "10s: reclaim images",
	}
	run(t, cfg, func(n *node, _ *Pressure, _ notify.Signal) {
		n.add("a", 0, uses{volume: 5})
		n.set(func() { n.disk = 70 })
		time.Sleep(10 * time.Second)
		n.want("enough", reclaims...)
	})
	run(t, cfg, func(n *node, _ *Pressure, _ notify.Signal) {
		n.add("a", 0, uses{volume: 5})
		n.set(func() { n.disk = 69 })
		time.Sleep(10 * time.Second)
		n.want("a byte short", append(reclaims,
			`10s: Warning Evicted of a, short of "ephemeral-storage"`,
			"10s: stop a (Evicted) within 1 s: The node was low on resource: ephemeral-storage. "+
				"Threshold quantity: 100, available: 69. ",
			"10s: counted nodefs.available")...)
	})
	run(t, cfg, func(n *node, _ *Pressure, _ notify.Signal) {
		n.add("a", 0, uses{volume: 5})
		n.set(func() { n.disk, n.disks = 69, &stats.Disks{ImageFs: true} })
		time.Sleep(10 * time.Second)
		if got := n.said(); strings.Contains(got, "reclaim images") || !strings.Contains(got, "stop a") {
			t.Errorf("with another disk for images:\n%s", got)
		}
	})
}

// Every pod over a limit of its own has to leave, whatever the node has left.
func TestLocalStorageLimits(t *testing.T) {
	most := resource.MustParse("1Ki")
	fill := func(n *node) {
		for _, name := range []string{"a", "b", "c"} {
			n.add(name, 0, uses{volume: 2048}).Spec.Volumes[0].EmptyDir.SizeLimit = &most
		}
		n.add("free", 0, uses{volume: 1 << 40})
		n.set(func() { n.usage["b"] = uses{volume: 1024} })
	}
	cfg := Config{StorageLimits: true, Transition: 5 * time.Minute, Cluster: true}
	run(t, cfg, func(n *node, _ *Pressure, _ notify.Signal) {
		time.Sleep(65 * time.Second)
		if n.asked != 0 {
			t.Error("the usage of pods is measured though none has a limit")
		}
		n.set(func() { n.begin = time.Now() })
		fill(n)
		time.Sleep(10 * time.Second)
		const message = `Usage of EmptyDir volume "data" exceeds the limit "1Ki". `
		n.want("over", `5s: Warning Evicted of a, short of ""`, "5s: stop a (OverLimit) within 1 s: "+message,
			"5s: counted emptydirfs.limit", `5s: Warning Evicted of c, short of ""`,
			"5s: stop c (OverLimit) within 1 s: "+message, "5s: counted emptydirfs.limit")
	})
	cfg.StorageLimits = false
	run(t, cfg, func(n *node, _ *Pressure, _ notify.Signal) {
		fill(n)
		time.Sleep(time.Minute)
		n.want("switched off")
	})
}

// A notification brings the next look at once.
func TestWake(t *testing.T) {
	run(t, memoryAt("100"), func(n *node, _ *Pressure, wake notify.Signal) {
		time.Sleep(3 * time.Second)
		n.set(func() { n.memory = 10 })
		wake.Notify()
		if got := n.said(); !strings.HasPrefix(got, "3s: pressure [MemoryPressure]") {
			t.Errorf("woken:\n%s", got)
		}
	})
}

// A static pod of a node without a cluster runs again when the node has enough.
func TestStaticPodsRunAgain(t *testing.T) {
	cfg := memoryAt("100")
	cfg.Cluster = false
	run(t, cfg, func(n *node, _ *Pressure, _ notify.Signal) {
		for _, name := range []string{"always", "never", "removed"} {
			pod := n.add(name, 0, uses{memory: 1})
			pod.Annotations[pods.AnnotationSource] = pods.SourceFile
			if name == "never" {
				pod.Spec.RestartPolicy = v1.RestartPolicyNever
			}
		}
		n.set(func() { n.memory = 10 })
		time.Sleep(30 * time.Second)
		n.set(func() {
			n.memory, n.notes = 500, nil
			e := n.pods["removed"]
			e.Unwanted = true
			n.pods["removed"] = e
		})
		time.Sleep(4 * time.Minute)
		n.want("still under pressure")
		time.Sleep(2 * time.Minute)
		got := n.said()
		for _, want := range []string{"pressure []", "remove always", "again"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
		if strings.Contains(got, "never") || strings.Contains(got, "removed") {
			t.Errorf("others come back:\n%s", got)
		}
	})
}

// A preempted static pod of a node without a cluster runs again when there is room for it, the one
// of the highest priority first.
func TestPreemptedPodsRunAgain(t *testing.T) {
	cfg := Config{Transition: time.Hour}
	run(t, cfg, func(n *node, _ *Pressure, _ notify.Signal) {
		for name, priority := range map[string]int32{"low": 1, "high": 9, "never": 10, "runs": 11} {
			pod := n.add(name, priority, uses{memory: 1})
			pod.Annotations[pods.AnnotationSource] = pods.SourceFile
			if name == "never" {
				pod.Spec.RestartPolicy = v1.RestartPolicyNever
			}
			if name != "runs" {
				n.set(func() {
					n.pods[pod.UID] = worker.Entry{
						Pod: pod, Phase: worker.Terminated, Stop: &worker.Stop{Cause: worker.CausePreempted, Since: time.Now()},
					}
				})
			}
		}
		time.Sleep(time.Minute)
		n.want("without room")
		n.set(func() { n.places = 1 })
		time.Sleep(10 * time.Second)
		n.want("with a place", "1m10s: remove high", "1m10s: again")
		n.set(func() { n.places = 2 })
		time.Sleep(10 * time.Second)
		n.want("with more", "1m20s: remove low", "1m20s: again")
	})
}

func TestConfigFrom(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	const text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" +
		"evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1m}\n" +
		"evictionMaxPodGracePeriod: 7\nevictionPressureTransitionPeriod: 90s\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := configs.Load(configs.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ConfigFrom(&cfg.Kubelet, true)
	if err != nil || got.MaxGrace != 7 || got.Transition != 90*time.Second || !got.StorageLimits || !got.Cluster {
		t.Errorf("%+v, %v", got, err)
	}
	signals := map[Signal]int{}
	for _, threshold := range got.Thresholds {
		signals[threshold.Signal]++
	}
	if signals[MemoryAvailable] != 2 || signals[AllocatableMemoryAvailable] != 1 || signals[NodeFsAvailable] != 1 {
		t.Errorf("thresholds %s", texts(got.Thresholds))
	}
	off := false
	cfg.Kubelet.LocalStorageCapacityIsolation = &off
	cfg.Kubelet.EvictionHard = map[string]string{"no": "1"}
	if got, err = ConfigFrom(&cfg.Kubelet, false); err == nil || got.StorageLimits || got.Cluster {
		t.Errorf("%+v, %v", got, err)
	}
	if !slices.Equal((&Pressure{}).Conditions(), nil) {
		t.Error("pressure from the start")
	}
}

// The logs of an evicted pod may be what fills the disk. They are removed before another pod has to
// leave, also where the runtime's images have a disk of their own.
func TestEvictedPodIsClearedBeforeAnotherLeaves(t *testing.T) {
	cfg := Config{
		Thresholds: []Threshold{{Signal: NodeFsAvailable, Least: amount("100")}}, Transition: 5 * time.Minute, Cluster: true,
	}
	run(t, cfg, func(n *node, _ *Pressure, _ notify.Signal) {
		n.add("a", 0, uses{logs: 30})
		n.add("b", 0, uses{logs: 60})
		n.set(func() { n.disks, n.disk = &stats.Disks{ImageFs: true}, 50 })
		time.Sleep(time.Minute)
		n.want("one eviction",
			"10s: pressure [DiskPressure]",
			"10s: Warning EvictionThresholdMet: Attempting to reclaim ephemeral-storage",
			`10s: Warning Evicted of b, short of "ephemeral-storage"`,
			"10s: stop b (Evicted) within 1 s: The node was low on resource: ephemeral-storage. Threshold quantity: 100, "+
				"available: 50. Container app was using 60, request is 0, has larger consumption of ephemeral-storage. ",
			"10s: counted nodefs.available",
			"12s: Warning EvictionThresholdMet: Attempting to reclaim ephemeral-storage",
			"12s: reclaim containers of b",
		)
	})
}
