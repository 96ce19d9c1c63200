package memory

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berthd/berth/agent/node/memory/state"
	"github.com/berthd/berth/agent/node/topology"
)

// amounts are bytes by the kind of memory: memory, or huge pages of a size.
type amounts map[v1.ResourceName]uint64

// Machine has what each NUMA node has: all its memory, and its huge pages, which are a part of it.
type Machine map[int]amounts

// Read reads the memory of the NUMA nodes from the kernel's directory, /sys/devices/system. A
// kernel without NUMA has the node 0 with all of the memory, as whole says.
func Read(system string, whole v1.ResourceList) (Machine, error) {
	nodes, err := topology.Nodes(system)
	if err != nil {
		return nil, err
	}
	out := Machine{}
	for _, n := range nodes {
		dir := filepath.Join(system, "node", "node"+strconv.Itoa(n))
		data, err := os.ReadFile(filepath.Join(dir, "meminfo"))
		if os.IsNotExist(err) && len(nodes) == 1 {
			out[n] = amounts{}
			for name, amount := range whole {
				if isMemory(name) {
					out[n][name] = uint64(amount.Value())
				}
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the memory of NUMA node %d: %w", n, err)
		}
		total, err := memTotal(string(data))
		if err != nil {
			return nil, fmt.Errorf("reading the memory of NUMA node %d: %w", n, err)
		}
		if out[n], err = hugePages(filepath.Join(dir, "hugepages")); err != nil {
			return nil, fmt.Errorf("reading the huge pages of NUMA node %d: %w", n, err)
		}
		out[n][v1.ResourceMemory] = total
	}
	return out, nil
}

// memTotal returns the bytes of the line "Node 0 MemTotal: 10839840 kB".
func memTotal(meminfo string) (uint64, error) {
	for line := range strings.Lines(meminfo) {
		fields := strings.Fields(line)
		if len(fields) == 5 && fields[2] == "MemTotal:" {
			kib, err := strconv.ParseUint(fields[3], 10, 54)
			return kib << 10, err
		}
	}
	return 0, errors.New("there is no MemTotal")
}

// hugePages returns the huge pages of a node, by their size.
func hugePages(dir string) (amounts, error) {
	sizes, err := filepath.Glob(filepath.Join(dir, "hugepages-*kB"))
	if err != nil {
		return nil, err
	}
	out := amounts{}
	for _, path := range sizes {
		text := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "hugepages-"), "kB")
		kib, err := strconv.ParseUint(text, 10, 53)
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(path, "nr_hugepages"))
		if err != nil {
			return nil, err
		}
		count, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 32)
		if err != nil {
			return nil, err
		}
		size := resource.NewQuantity(int64(kib<<10), resource.BinarySI)
		out[v1.ResourceName(v1.ResourceHugePagesPrefix+size.String())] = count * kib << 10
	}
	return out, nil
}

// isMemory reports whether a resource is memory or huge pages.
func isMemory(name v1.ResourceName) bool {
	return name == v1.ResourceMemory || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// tables returns what the nodes have while nobody has memory. Huge pages, and what is reserved, are
// no memory that containers can have. Every node has an entry for what any of them has.
func (m Machine) tables(reserved Machine) state.NUMANodeMap {
	kinds := amounts{}
	for _, has := range m {
		maps.Copy(kinds, has)
	}
	out := state.NUMANodeMap{}
	for n, has := range m {
		node := &state.NUMANodeState{MemoryMap: map[v1.ResourceName]*state.MemoryTable{}, Cells: []int{n}}
		huge := uint64(0)
		for name := range kinds {
			total := has[name]
			if name != v1.ResourceMemory {
				huge += total
			}
			node.MemoryMap[name] = &state.MemoryTable{TotalMemSize: total, SystemReserved: reserved[n][name]}
		}
		for name, t := range node.MemoryMap {
			kept := t.SystemReserved
			if name == v1.ResourceMemory {
				kept += huge
			}
			t.Allocatable = t.TotalMemSize - min(kept, t.TotalMemSize)
			t.Free = t.Allocatable
		}
		out[n] = node
	}
	return out
}

// assign takes blocks from the nodes. It returns an error if a node does not have such memory.
func assign(nodes state.NUMANodeMap, blocks []state.Block) error {
	for _, b := range blocks {
		for _, n := range b.NUMAAffinity {
			if nodes[n] == nil || nodes[n].MemoryMap[b.Type] == nil {
				return fmt.Errorf("the machine has no %s on NUMA node %d", b.Type, n)
			}
		}
		take(nodes, b, b.Size)
	}
	return nil
}

// take counts a block of the nodes, of which that much is not taken yet.
func take(nodes state.NUMANodeMap, b state.Block, missing uint64) {
	for _, n := range b.NUMAAffinity {
		nodes[n].NumberOfAssignments++
		nodes[n].Cells = slices.Clone(b.NUMAAffinity)
		t := nodes[n].MemoryMap[b.Type]
		some := min(missing, t.Free)
		t.Free -= some
		t.Reserved += some
		missing -= some
	}
}

// giveBack gives a block back to the nodes. A node of which nobody has a block gives memory alone
// again.
func giveBack(nodes state.NUMANodeMap, b state.Block) {
	size := b.Size
	for _, n := range b.NUMAAffinity {
		if nodes[n].NumberOfAssignments--; nodes[n].NumberOfAssignments == 0 {
			nodes[n].Cells = []int{n}
		}
		t := nodes[n].MemoryMap[b.Type]
		some := min(size, t.Reserved)
		t.Free += some
		t.Reserved -= some
		size -= some
	}
}

// sum returns how much of a kind of memory some nodes have together, as of tells.
func sum(nodes state.NUMANodeMap, in topology.Mask, name v1.ResourceName, of func(*state.MemoryTable) uint64) uint64 {
	out := uint64(0)
	for _, n := range in.Nodes() {
		if node := nodes[n]; node != nil && node.MemoryMap[name] != nil {
			out += of(node.MemoryMap[name])
		}
	}
	return out
}

func free(t *state.MemoryTable) uint64        { return t.Free }
func allocatable(t *state.MemoryTable) uint64 { return t.Allocatable }

// apart reports whether nodes cannot give memory together, because one of them gives memory alone,
// or together with others.
func apart(nodes state.NUMANodeMap, group topology.Mask) bool {
	for _, n := range group.Nodes() {
		switch node := nodes[n]; {
		case node == nil, node.NumberOfAssignments == 0, group.Count() == 1:
		case topology.MaskOf(node.Cells...) != group:
			return true
		}
	}
	return false
}

// names returns the kinds of memory of a request, sorted.
func (a amounts) names() []v1.ResourceName { return slices.Sorted(maps.Keys(a)) }
