package agent

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/internal/pods"
)

// scalePoll is how often the benchmark looks whether the pods have come or gone.
const scalePoll = 100 * time.Millisecond

// BenchmarkPodsAtOnce has a number of pods come to an agent at once, on the fake runtime, and go at
// once. It reports, for each pod, the time and the CPU time of coming and going, and the memory
// while the pod runs. All of them have to be about the same for every number of pods. The CPU time
// and the memory include those of the fake runtime.
func BenchmarkPodsAtOnce(b *testing.B) {
	for _, n := range []int{50, 100, 250, 500} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var total scale
			for range b.N {
				total.add(atOnce(b, n))
			}
			total.report(b, n)
		})
	}
}

// scale is what many pods took together.
type scale struct {
	comes, comesCPU, goes, goesCPU time.Duration
	memory                         int64
}

func (s *scale) add(o scale) {
	s.comes, s.comesCPU, s.goes, s.goesCPU = s.comes+o.comes, s.comesCPU+o.comesCPU, s.goes+o.goes, s.goesCPU+o.goesCPU
	s.memory += o.memory
}

func (s *scale) report(b *testing.B, n int) {
	all := float64(b.N * n)
	for unit, took := range map[string]time.Duration{
		"up-ms/pod": s.comes, "up-cpu-ms/pod": s.comesCPU, "down-ms/pod": s.goes, "down-cpu-ms/pod": s.goesCPU,
	} {
		b.ReportMetric(took.Seconds()*1e3/all, unit)
	}
	b.ReportMetric(float64(s.memory)/1024/all, "KiB/pod")
	b.ReportMetric(0, "ns/op")
}

// crowd is a source of pods that come at once and go at once.
type crowd struct {
	pods  []*v1.Pod
	there chan bool
}

func (*crowd) Name() string { return pods.SourceFile }

func (c *crowd) Run(ctx context.Context, out func(source.Snapshot)) error {
	out(source.Snapshot{Source: pods.SourceFile, Ready: true})
	for {
		select {
		case <-ctx.Done():
			return nil
		case there := <-c.there:
			s := source.Snapshot{Source: pods.SourceFile, Ready: true}
			if there {
				s.Pods = c.pods
			}
			out(s)
		}
	}
}

// newCrowd returns n pods like those that people write.
func newCrowd(b *testing.B, n int) *crowd {
	b.Helper()
	c := &crowd{there: make(chan bool)}
	for i := range n {
		text := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: pod-%d, labels: {app: web, number: "%d"}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: registry.local/app:v1
      command: [app]
      env: [{name: A, value: b}]
      resources: {requests: {cpu: 1m, memory: 1Mi}, limits: {memory: 64Mi}}
      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
`, i, i)
		for _, item := range (source.Decoder{NodeName: "node"}).Decode(fmt.Sprintf("pod-%d.yaml", i), []byte(text)) {
			if item.Pod == nil {
				b.Fatalf("manifest refused: %s", item.Result.Message)
			}
			c.pods = append(c.pods, item.Pod)
		}
	}
	return c
}

// atOnce measures one coming and going.
func atOnce(b *testing.B, n int) scale {
	b.Helper()
	rt := fake.New(fake.Config{})
	from := newCrowd(b, n)
	a, end := liveWith(b, b.TempDir(), rt, from, Deps{}, func(cfg *configs.Config) { cfg.Kubelet.MaxPods = int32(n) })
	defer end()
	before := heap(rt)
	var out scale
	out.comes, out.comesCPU = took(b, func() {
		from.there <- true
		waitFor(b, func() string { return notReady(a.Pods(), n) })
	})
	out.memory = heap(rt) - before
	out.goes, out.goesCPU = took(b, func() {
		from.there <- false
		waitFor(b, func() string {
			if left := len(a.Pods()); left > 0 {
				return fmt.Sprintf("%d pods are left", left)
			}
			return ""
		})
	})
	if left := rt.Leftovers(); len(left) > 0 {
		b.Errorf("left in the runtime: %s", strings.Join(left, ", "))
	}
	return out
}

// notReady says that some of n pods are not ready; it returns the empty string if all are.
func notReady(list []*v1.Pod, n int) string {
	ready := 0
	for _, pod := range list {
		for _, c := range pod.Status.Conditions {
			if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
				ready++
			}
		}
	}
	if ready < n {
		return fmt.Sprintf("%d of %d pods are ready", ready, n)
	}
	return ""
}

// waitFor waits until missing returns the empty string.
func waitFor(b *testing.B, missing func() string) {
	b.Helper()
	ticker := time.NewTicker(scalePoll)
	defer ticker.Stop()
	limit := time.After(5 * time.Minute)
	for {
		what := missing()
		if what == "" {
			return
		}
		select {
		case <-ticker.C:
		case <-limit:
			b.Fatal(what)
		}
	}
}

// took returns the time and the CPU time that something takes.
func took(b *testing.B, do func()) (wall, cpu time.Duration) {
	b.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began, before := time.Now(), used()
	do()
	return time.Since(began), used() - before
}

// heap returns the bytes that are in use, without the fake runtime's journal.
func heap(rt *fake.Runtime) int64 {
	rt.ResetCalls()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
