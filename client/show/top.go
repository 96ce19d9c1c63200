package show

import (
	"cmp"
	"fmt"
	"slices"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// TopColumns selects the columns of a usage table, and its order.
type TopColumns struct {
	Namespace, Containers, Sum bool
	// Sort is "cpu" or "memory", highest usage first; empty sorts by name.
	Sort string
}

// use is the content of one row.
type use struct {
	namespace, pod, container string
	cores, bytes              uint64
}

// Top returns the cpu and memory usage of pods, or of their containers, in the form of kubectl top.
func Top(pods []statsapi.PodStats, columns TopColumns) *Table {
	var rows []use
	for i := range pods {
		p := &pods[i]
		if !columns.Containers {
			rows = append(rows, use{p.PodRef.Namespace, p.PodRef.Name, "", nanoCores(p.CPU), workingSet(p.Memory)})
			continue
		}
		for _, c := range p.Containers {
			rows = append(rows, use{p.PodRef.Namespace, p.PodRef.Name, c.Name, nanoCores(c.CPU), workingSet(c.Memory)})
		}
	}
	slices.SortStableFunc(rows, func(a, b use) int {
		order := cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.pod, b.pod),
			cmp.Compare(a.container, b.container))
		switch columns.Sort {
		case "cpu":
			return cmp.Or(cmp.Compare(b.cores, a.cores), order)
		case "memory":
			return cmp.Or(cmp.Compare(b.bytes, a.bytes), order)
		}
		return order
	})
	cells := func(namespace, pod, container, cores, bytes string) []string {
		var out []string
		if columns.Namespace {
			out = append(out, namespace)
		}
		out = append(out, pod)
		if columns.Containers {
			out = append(out, container)
		}
		return append(out, cores, bytes)
	}
	t := &Table{Headings: cells("NAMESPACE", map[bool]string{false: "NAME", true: "POD"}[columns.Containers], "NAME",
		"CPU(cores)", "MEMORY(bytes)")}
	var sum use
	for _, r := range rows {
		t.Add(cells(r.namespace, r.pod, r.container, Cores(r.cores), Bytes(r.bytes))...)
		sum.cores, sum.bytes = sum.cores+r.cores, sum.bytes+r.bytes
	}
	if columns.Sum {
		t.Add(cells("", "", "", "________", "________")...)
		t.Add(cells("", "", "", Cores(sum.cores), Bytes(sum.bytes))...)
	}
	return t
}

// TopNode returns the usage of a node with this number of cores.
func TopNode(node *statsapi.NodeStats, cores int) *Table {
	t := &Table{Headings: []string{"NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"}}
	used, working := nanoCores(node.CPU), workingSet(node.Memory)
	var capacity uint64
	if node.Memory != nil && node.Memory.AvailableBytes != nil {
		capacity = working + *node.Memory.AvailableBytes
	}
	t.Add(node.NodeName, Cores(used), percent(used, uint64(cores)*1e9), Bytes(working), percent(working, capacity))
	return t
}

// Cores formats billionths of a core as kubectl top does: in thousandths, rounded up, so that a
// small usage is not shown as 0.
func Cores(nano uint64) string { return fmt.Sprintf("%dm", (nano+1e6-1)/1e6) }

// Bytes formats a size as kubectl top does, in whole mebibytes.
func Bytes(n uint64) string { return fmt.Sprintf("%dMi", n>>20) }

func percent(part, whole uint64) string {
	if whole == 0 {
		return "<unknown>"
	}
	return fmt.Sprintf("%d%%", part*100/whole)
}

func nanoCores(c *statsapi.CPUStats) uint64 {
	if c == nil || c.UsageNanoCores == nil {
		return 0
	}
	return *c.UsageNanoCores
}

func workingSet(m *statsapi.MemoryStats) uint64 {
	if m == nil || m.WorkingSetBytes == nil {
		return 0
	}
	return *m.WorkingSetBytes
}
