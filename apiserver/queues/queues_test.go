package queues_test

import (
	"bytes"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/berthd/berth/apiserver/queues"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
	// As in the program, which has it from Kubernetes.
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
	testclock "k8s.io/utils/clock/testing"
)

// TestQueuesHaveNoTimers makes a queue as the controllers do, and lets its time go on until nothing
// ticks. The queue works as before, and has its metrics.
func TestQueuesHaveNoTimers(t *testing.T) {
	now := testclock.NewFakeClock(time.Now())
	q := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "tested", Clock: now})
	defer q.ShutDown()
	until(func() bool { return ticks(t) })
	until(func() bool {
		now.Step(time.Second)
		return !ticks(t)
	})
	q.Add("a")
	q.AddRateLimited("b")
	until(func() bool {
		now.Step(time.Second)
		return q.Len() == 2
	})
	for _, want := range []string{"a", "b"} {
		if got, _ := q.Get(); got != want {
			t.Errorf("the queue gave %q, not %q", got, want)
		}
		q.Done(want)
	}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "workqueue_") {
			names = append(names, strings.TrimPrefix(f.GetName(), "workqueue_"))
		}
	}
	slices.Sort(names)
	want := []string{"adds_total", "depth", "queue_duration_seconds", "retries_total", "work_duration_seconds"}
	if !slices.Equal(names, want) {
		t.Errorf("there are the metrics %q, not %q", names, want)
	}
}

// until waits until something holds. The test's time limit ends it.
func until(holds func() bool) {
	for !holds() {
		time.Sleep(time.Millisecond)
	}
}

// ticks reports whether the goroutine of a queue's timer runs.
func ticks(t *testing.T) bool {
	t.Helper()
	var stacks bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 1); err != nil {
		t.Fatal(err)
	}
	return strings.Contains(stacks.String(), "updateUnfinishedWorkLoop")
}
