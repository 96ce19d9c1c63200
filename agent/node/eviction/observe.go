package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/agent/node/stats"
)

// observation is what is left of a signal's amount.
type observation struct {
	available, capacity resource.Quantity
	at                  time.Time
}

// observations has the signals that could be read.
type observations map[Signal]observation

// observe takes the signals from the node's usage. A signal without a capacity is left out: nothing
// is known of it, or the file system does not count inodes.
func observe(n *stats.NodeUsage) observations {
	out := observations{}
	out.memory(MemoryAvailable, n.Memory)
	for i := range n.SystemContainers {
		if n.SystemContainers[i].Name == statsapi.SystemContainerPods {
			out.memory(AllocatableMemoryAvailable, n.SystemContainers[i].Memory)
		}
	}
	out.disk(NodeFsAvailable, NodeFsInodesFree, n.Fs)
	if n.Runtime != nil {
		out.disk(ImageFsAvailable, ImageFsInodesFree, n.Runtime.ImageFs)
		out.disk(ContainerFsAvailable, ContainerFsInodesFree, n.Runtime.ContainerFs)
	}
	if r := n.Rlimit; r != nil && r.MaxPID != nil && r.NumOfRunningProcesses != nil {
		out.add(PIDAvailable, *r.MaxPID-*r.NumOfRunningProcesses, *r.MaxPID, resource.DecimalSI, r.Time.Time)
	}
	return out
}

// memory adds a signal about memory: the capacity is what is available and the working set.
func (o observations) memory(s Signal, m *statsapi.MemoryStats) {
	if m != nil && m.AvailableBytes != nil && m.WorkingSetBytes != nil {
		o.add(s, int64(*m.AvailableBytes), int64(*m.AvailableBytes+*m.WorkingSetBytes), resource.BinarySI, m.Time.Time)
	}
}

// disk adds the two signals about a file system.
func (o observations) disk(bytes, inodes Signal, fs *statsapi.FsStats) {
	if fs == nil {
		return
	}
	if fs.AvailableBytes != nil && fs.CapacityBytes != nil {
		o.add(bytes, int64(*fs.AvailableBytes), int64(*fs.CapacityBytes), resource.BinarySI, fs.Time.Time)
	}
	if fs.InodesFree != nil && fs.Inodes != nil {
		o.add(inodes, int64(*fs.InodesFree), int64(*fs.Inodes), resource.DecimalSI, fs.Time.Time)
	}
}

func (o observations) add(s Signal, available, capacity int64, form resource.Format, at time.Time) {
	if capacity > 0 {
		o[s] = observation{
			available: *resource.NewQuantity(available, form), capacity: *resource.NewQuantity(capacity, form), at: at,
		}
	}
}

// has reports whether a signal could be read.
func (o observations) has(s Signal) bool {
	_, ok := o[s]
	return ok
}

// met reports whether less is left than a threshold allows. With reclaim, it reports whether less
// is left than the threshold and its minimum reclaim. A signal that could not be read meets none.
func (o observations) met(t Threshold, reclaim bool) bool {
	seen, ok := o[t.Signal]
	if !ok {
		return false
	}
	least := t.Least.of(seen.capacity)
	if reclaim {
		least.Add(t.Reclaim.of(seen.capacity))
	}
	return least.Cmp(seen.available) > 0
}

// shortage returns the threshold's amount and what was left, of the first threshold about a
// resource; false if none is about it.
func (o observations) shortage(of v1.ResourceName, due []Threshold) (least, available resource.Quantity, ok bool) {
	for _, t := range due {
		if seen, found := o[t.Signal]; found && t.Signal.resource() == of {
			return t.Least.of(seen.capacity), seen.available, true
		}
	}
	return least, available, false
}
