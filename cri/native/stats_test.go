package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/typeurl/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// measuring is a containerd that measures.
type measuring struct {
	snapshots.Snapshotter

	mu sync.Mutex
	// failing are the snapshots that cannot be measured, and gone the tasks that containerd has no
	// metrics of.
	failing, gone []string
	layers, asked int
}

// Usage measures a snapshot: it has as many bytes as its name has letters.
func (m *measuring) Usage(_ context.Context, name string) (snapshots.Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.layers++
	if slices.Contains(m.failing, name) {
		return snapshots.Usage{}, errors.New("lstat /some/file: no such file or directory")
	}
	return snapshots.Usage{Size: int64(len(name)), Inodes: 1}, nil
}

// runtime returns a runtime on this containerd.
func (m *measuring) runtime(t *testing.T) *Runtime {
	t.Helper()
	return fakeContainerd{
		snapshotter: m, services: []client.ServicesOpt{client.WithTaskClient(&fakeTasks{metrics: m.metrics})},
	}.runtime(t)
}

// metrics measures tasks.
func (m *measuring) metrics(request *tasksapi.MetricsRequest) (*tasksapi.MetricsResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	out := &tasksapi.MetricsResponse{}
	for _, filter := range request.GetFilters() {
		id := strings.TrimPrefix(filter, "id==")
		if slices.Contains(m.gone, id) {
			continue
		}
		data, err := typeurl.MarshalAnyToProto(&v2.Metrics{Memory: &v2.MemoryStat{Usage: uint64(len(id))}})
		if err != nil {
			return nil, err
		}
		out.Metrics = append(out.Metrics, &types.Metric{ID: id, Data: data})
	}
	return out, nil
}

// summary returns what stats say, by ID.
func summary(list []*runtimeapi.ContainerStats) string {
	var out []string
	for _, s := range list {
		out = append(out, fmt.Sprintf("%s %d %d", s.GetAttributes().GetId(), s.GetWritableLayer().GetUsedBytes().GetValue(),
			s.GetMemory().GetUsageBytes().GetValue()))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// A file vanishes while a layer is measured, and a container ends while its task is. The others
// have their stats, by one request.
func TestStatsOfOthers(t *testing.T) {
	m := &measuring{failing: []string{"bb"}, gone: []string{"ccc"}}
	r := m.runtime(t)
	for _, id := range []string{"a", "bb", "ccc"} {
		r.runs(t, id, &fakeTask{id: id})
	}
	ended := r.runs(t, "dddd", &fakeTask{id: "dddd"})
	ended.record.FinishedAt = 2
	list, err := r.ListContainerStats(t.Context(), nil)
	if got, want := summary(list), "a 1 1, bb 0 2, ccc 3 0, dddd 4 0"; err != nil || got != want {
		t.Errorf("the stats are %q, %v, want %q", got, err, want)
	}
	if m.asked != 1 {
		t.Errorf("the tasks were measured by %d requests", m.asked)
	}
	if one, err := r.ContainerStats(t.Context(), "ccc"); err != nil || one.GetMemory() != nil {
		t.Errorf("those of a container that ends are %v, %v", one, err)
	}
	if _, err := r.ContainerStats(t.Context(), "bb"); err == nil {
		t.Error("a single container that cannot be measured is no error")
	}
	if _, err := r.ContainerStats(t.Context(), "dddd"); err != nil || m.asked != 2 {
		t.Errorf("for a container that does not run all tasks are measured: %v, %d requests", err, m.asked)
	}
}

// What a container has written is measured once in a while.
func TestLayersAreMeasuredSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &measuring{}
		r := m.runtime(t)
		r.runs(t, "a", &fakeTask{id: "a"})
		measure := func(want int) {
			t.Helper()
			list, err := r.ListContainerStats(t.Context(), nil)
			if got := summary(list); err != nil || got != "a 1 1" || m.layers != want {
				t.Errorf("the stats are %q, %v, and the layer was measured %d times, want %d", got, err, m.layers, want)
			}
		}
		measure(1)
		time.Sleep(layerAge - time.Nanosecond)
		measure(1)
		time.Sleep(time.Nanosecond)
		measure(2)
	})
}
