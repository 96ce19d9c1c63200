package eviction

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/agent/node/stats"
)

// left returns observations of signals with a capacity of 1000 each.
func left(amounts map[Signal]int64) observations {
	out := observations{}
	for s, n := range amounts {
		out.add(s, n, 1000, resource.DecimalSI, time.Time{})
	}
	return out
}

func amount(text string) Value {
	q := resource.MustParse(text)
	return Value{quantity: &q}
}

// A look is what a test sees at a time: what is left of a signal, and what follows.
type look struct {
	at   time.Duration
	left int64
	// due are the thresholds that pods are evicted for, conditions those of the node.
	due, conditions string
}

func TestPressure(t *testing.T) {
	const memory, none = "[MemoryPressure]", "[]"
	hard := Threshold{Signal: MemoryAvailable, Least: amount("100")}
	soft := Threshold{Signal: MemoryAvailable, Least: Value{share: 0.2}, Grace: time.Minute}
	reclaim := Threshold{Signal: MemoryAvailable, Least: amount("100"), Reclaim: Value{share: 0.05}}
	for name, c := range map[string]struct {
		thresholds []Threshold
		looks      []look
	}{
		"hard": {[]Threshold{hard}, []look{
			{0, 100, "", none},
			{10 * time.Second, 99, "memory.available<100", memory},
			{20 * time.Second, 101, "", memory},
			{5*time.Minute + 9*time.Second, 101, "", memory},
			{5*time.Minute + 10*time.Second, 101, "", none},
		}},
		"soft": {[]Threshold{soft}, []look{
			{0, 150, "", memory},
			{59 * time.Second, 150, "", memory},
			{time.Minute, 150, "memory.available<20% after 1m0s", memory},
			{70 * time.Second, 200, "", memory},
			{80 * time.Second, 150, "", memory}, // its grace begins again
			{140 * time.Second, 150, "memory.available<20% after 1m0s", memory},
		}},
		"both": {[]Threshold{hard, soft}, []look{
			{0, 150, "", memory},
			{time.Second, 50, "memory.available<100", memory},
			{time.Minute, 50, "memory.available<100; memory.available<20% after 1m0s", memory},
		}},
		"with a minimum reclaim": {[]Threshold{reclaim}, []look{
			{0, 120, "", none}, // it counts only for a threshold that was met
			{10 * time.Second, 99, "memory.available<100 and 5%", memory},
			{20 * time.Second, 149, "memory.available<100 and 5%", memory},
			{30 * time.Second, 150, "", memory},
			{40 * time.Second, 149, "", memory},
		}},
		"a signal that cannot be read": {[]Threshold{hard}, []look{
			{0, 50, "memory.available<100", memory},
			{10 * time.Second, -1, "", memory},
		}},
		"a grace period goes on while the signal cannot be read": {[]Threshold{soft}, []look{
			{0, 150, "", memory},
			{30 * time.Second, -1, "", memory},
			{time.Minute, 150, "memory.available<20% after 1m0s", memory},
			{70 * time.Second, -1, "", memory},
			{80 * time.Second, 150, "memory.available<20% after 1m0s", memory},
		}},
	} {
		var s state
		begin := time.Now()
		r := rules{thresholds: c.thresholds, transition: 5 * time.Minute}
		for _, l := range c.looks {
			o := observations{}
			if l.left >= 0 {
				o = left(map[Signal]int64{MemoryAvailable: l.left})
			}
			after, due, conditions := s.next(r, o, begin.Add(l.at))
			if got := texts(due); got != l.due || fmt.Sprint(conditions) != l.conditions {
				t.Errorf("%s at %v: due %q, conditions %v; want %q, %s", name, l.at, got, conditions, l.due, l.conditions)
			}
			s = after
		}
	}
}

// Every signal has its condition, and the conditions are sorted.
func TestConditions(t *testing.T) {
	var thresholds []Threshold
	amounts := map[Signal]int64{}
	for _, s := range order() {
		thresholds = append(thresholds, Threshold{Signal: s, Least: amount("1")})
		amounts[s] = 0
	}
	_, due, conditions := state{}.next(rules{thresholds, time.Minute}, left(amounts), time.Now())
	if len(due) != len(order()) || fmt.Sprint(conditions) != "[DiskPressure MemoryPressure PIDPressure]" {
		t.Errorf("due %s, conditions %v", texts(due), conditions)
	}
	for s, want := range map[Signal]v1.NodeConditionType{
		AllocatableMemoryAvailable: v1.NodeMemoryPressure, ContainerFsInodesFree: v1.NodeDiskPressure,
		NodeFsAvailable: v1.NodeDiskPressure, PIDAvailable: v1.NodePIDPressure,
	} {
		if got := s.condition(); got != want {
			t.Errorf("%s: %s, want %s", s, got, want)
		}
	}
}

func TestRelieved(t *testing.T) {
	thresholds := []Threshold{{Signal: NodeFsAvailable, Least: amount("100"), Reclaim: amount("50")}}
	for amount, want := range map[int64]bool{99: false, 149: false, 150: true} {
		if got := relieved(thresholds, left(map[Signal]int64{NodeFsAvailable: amount})); got != want {
			t.Errorf("with %d: %t", amount, got)
		}
	}
}

func TestObserve(t *testing.T) {
	fs := func(available, capacity, free, inodes uint64) *statsapi.FsStats {
		return &statsapi.FsStats{AvailableBytes: &available, CapacityBytes: &capacity, InodesFree: &free, Inodes: &inodes}
	}
	memory := func(available, workingSet uint64) *statsapi.MemoryStats {
		return &statsapi.MemoryStats{AvailableBytes: &available, WorkingSetBytes: &workingSet}
	}
	most, running := int64(1000), int64(400)
	full := stats.NodeUsage{NodeStats: statsapi.NodeStats{
		Memory:           memory(1<<20, 3<<20),
		SystemContainers: []statsapi.ContainerStats{{Name: "kubelet"}, {Name: "pods", Memory: memory(1<<10, 1<<10)}},
		Fs:               fs(10, 100, 5, 50),
		Runtime:          &statsapi.RuntimeStats{ImageFs: fs(20, 200, 6, 60), ContainerFs: fs(30, 300, 7, 0)},
		Rlimit:           &statsapi.RlimitStats{MaxPID: &most, NumOfRunningProcesses: &running},
	}}
	unlimited := stats.NodeUsage{NodeStats: statsapi.NodeStats{
		Memory:           memory(0, 0), // /proc/meminfo could not be read
		SystemContainers: []statsapi.ContainerStats{{Name: "pods", Memory: &statsapi.MemoryStats{}}},
		Rlimit:           &statsapi.RlimitStats{MaxPID: new(int64), NumOfRunningProcesses: &running},
	}}
	for name, c := range map[string]struct {
		usage stats.NodeUsage
		want  string
	}{
		"all": {full, "memory.available 1Mi/4Mi, allocatableMemory.available 1Ki/2Ki, nodefs.available 10/100, " +
			"nodefs.inodesFree 5/50, imagefs.available 20/200, imagefs.inodesFree 6/60, containerfs.available 30/300, " +
			"pid.available 600/1k, "},
		"nothing known": {unlimited, ""},
	} {
		got := ""
		o := observe(&c.usage)
		for _, s := range order() {
			if seen, ok := o[s]; ok {
				got += fmt.Sprintf("%s %s/%s, ", s, seen.available.String(), seen.capacity.String())
			}
		}
		if got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
}
