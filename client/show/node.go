package show

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/internal/pods"
)

// barWidth is how many characters a bar has between its ends.
const barWidth = 10

// NodeResources returns a table of what a node has of each resource: its capacity, what of it pods
// can request, what they request, and what is used. With bars, the shares are drawn, too.
func NodeResources(r *api.Resources, node *statsapi.NodeStats, bars bool) *Table {
	t := &Table{Headings: []string{"RESOURCE", "CAPACITY", "ALLOCATABLE", "REQUESTED", "USED"}}
	for _, name := range pods.ResourceNames(r.Capacity) {
		capacity, allocatable := amountOf(r.Capacity, name), amountOf(r.Allocatable, name)
		requested := amountOf(r.Requested, name)
		used := "-"
		switch {
		case name == v1.ResourceCPU && node.CPU != nil:
			used = share(name, nanoCores(node.CPU), capacity, bars)
		case name == v1.ResourceMemory && node.Memory != nil:
			used = share(name, workingSet(node.Memory), capacity, bars)
		}
		t.Add(string(name), quantity(name, capacity), quantity(name, allocatable),
			share(name, requested, allocatable, bars), used)
	}
	return t
}

// amountOf returns billionths of a core for cpu, and whole units for other resources.
func amountOf(list v1.ResourceList, name v1.ResourceName) uint64 {
	q := list[name]
	if name == v1.ResourceCPU {
		return uint64(max(q.MilliValue(), 0)) * 1e6
	}
	return uint64(max(q.Value(), 0))
}

// quantity formats an amount of a resource as the other usage tables do.
func quantity(name v1.ResourceName, n uint64) string {
	switch {
	case name == v1.ResourceCPU:
		return Cores(n)
	case name == v1.ResourceMemory, name == v1.ResourceEphemeralStorage,
		strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix):
		return Bytes(n)
	}
	return fmt.Sprint(n)
}

// share formats a part of an amount, with its percentage and, if wanted, a bar.
func share(name v1.ResourceName, part, whole uint64, bar bool) string {
	text := quantity(name, part)
	if whole == 0 {
		return text
	}
	text += " (" + percent(part, whole) + ")"
	if !bar {
		return text
	}
	full := int(min(float64(part)/float64(whole), 1) * barWidth)
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "] " + text
}
