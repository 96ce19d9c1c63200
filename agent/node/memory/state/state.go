// Package state reads and writes the file in which a kubelet's memory manager keeps who has memory
// of which NUMA nodes.
//
// Purpose: berth takes over a kubelet's file, and a kubelet takes over berth's. The file's checksum
// covers the names of the Go types and of this package, so they are the kubelet's
// (pkg/kubelet/cm/memorymanager/state, release 1.36). A kubelet has two formats: the one with the
// memory of whole pods if its feature gate PodLevelResourceManagers is on, the one without if the
// gate is off. The formats have different checksums also if no pod has memory.
//
// Truth owned: the format. Package memory owns the content.
//
// Concurrency: the functions have no state.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/atomicfile"
	"github.com/berthd/berth/internal/checksum"
)

// File is the file's name in the agent's root directory.
const File = "memory_manager_state"

// MemoryTable says how much of one kind of memory a NUMA node has, in bytes.
type MemoryTable struct {
	TotalMemSize   uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
	Reserved       uint64 `json:"reserved"`
	Free           uint64 `json:"free"`
}

// NUMANodeState is one NUMA node. Cells are the nodes that give memory together with it: the node
// alone, if nobody has memory of several nodes.
type NUMANodeState struct {
	NumberOfAssignments int                              `json:"numberOfAssignments"`
	MemoryMap           map[v1.ResourceName]*MemoryTable `json:"memoryMap"`
	Cells               []int                            `json:"cells"`
}

// NUMANodeMap are the machine's NUMA nodes.
type NUMANodeMap map[int]*NUMANodeState

// Block is memory of one kind, memory or huge pages of a size, that a container has of these nodes
// together.
type Block struct {
	NUMAAffinity []int           `json:"numaAffinity"`
	Type         v1.ResourceName `json:"type"`
	Size         uint64          `json:"size"`
}

// ContainerMemoryAssignments are the blocks of containers, by pod and container.
type ContainerMemoryAssignments map[string]map[string][]Block

// PodMemoryAssignments are the blocks of whole pods, of which the containers have theirs.
type PodMemoryAssignments map[string]PodEntry

// PodEntry has the blocks of a whole pod.
type PodEntry struct {
	MemoryBlocks []Block `json:"memoryBlocks,omitempty"`
}

// MemoryManagerCheckpoint is the file in the format that has the memory of whole pods. The checksum
// is computed with the checksum 0. If PodEntries is nil, [Write] uses the format without them.
type MemoryManagerCheckpoint struct {
	PolicyName   string                     `json:"policyName"`
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries,omitempty"`
	PodEntries   PodMemoryAssignments       `json:"podEntries,omitempty"`
	Checksum     checksum.Checksum          `json:"checksum"`
}

// MemoryManagerCheckpointV1 is the file in the format without them.
type MemoryManagerCheckpointV1 struct {
	PolicyName   string                     `json:"policyName"`
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries,omitempty"`
	Checksum     checksum.Checksum          `json:"checksum"`
}

// sum returns the checksum of the content. A kubelet's maps are empty where the file has none.
func (c MemoryManagerCheckpoint) sum() checksum.Checksum {
	c.Checksum = 0
	if c.Entries == nil {
		c.Entries = ContainerMemoryAssignments{}
	}
	if c.MachineState == nil {
		c.MachineState = NUMANodeMap{}
	}
	if c.PodEntries == nil {
		c.PodEntries = PodMemoryAssignments{}
	}
	return checksum.Of(&c)
}

// old returns the file in the format without whole pods, with its checksum. The type had another
// name when it was the only one, and the checksum is that of the name.
func (c MemoryManagerCheckpoint) old() MemoryManagerCheckpointV1 {
	out := MemoryManagerCheckpointV1{PolicyName: c.PolicyName, MachineState: c.MachineState, Entries: c.Entries}
	if out.Entries == nil {
		out.Entries = ContainerMemoryAssignments{}
	}
	if out.MachineState == nil {
		out.MachineState = NUMANodeMap{}
	}
	out.Checksum = checksum.As(&out, "MemoryManagerCheckpointV1", "MemoryManagerCheckpoint")
	return out
}

// encode returns the file's text.
func (c MemoryManagerCheckpoint) encode() ([]byte, error) {
	if c.PodEntries == nil {
		return json.Marshal(c.old())
	}
	if c.MachineState == nil {
		c.MachineState = NUMANodeMap{}
	}
	c.Checksum = c.sum()
	return json.Marshal(c)
}

// Read returns what the file at path has; nil if there is no file. A file that is cut short, or
// whose checksum is wrong, is an error.
func Read(path string) (*MemoryManagerCheckpoint, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no file is no error, and nothing is known
	}
	if err != nil {
		return nil, fmt.Errorf("reading the memory of pods: %w", err)
	}
	var c MemoryManagerCheckpoint
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("reading the memory of pods in %s: %w", path, err)
	}
	if sum, ok := checksum.Verify(c.Checksum, c.sum(), c.old().Checksum, len(c.PodEntries) > 0); !ok {
		return nil, fmt.Errorf("reading the memory of pods in %s: its checksum is %d, but its content has %d", path,
			c.Checksum, sum)
	}
	return &c, nil
}

// Write replaces the file at path.
func Write(path string, c MemoryManagerCheckpoint) error {
	data, err := c.encode()
	if err != nil {
		return fmt.Errorf("writing the memory of pods: %w", err)
	}
	if err := atomicfile.Write(path, data, 0o600, atomicfile.OverPowerLoss); err != nil {
		return fmt.Errorf("writing the memory of pods: %w", err)
	}
	return nil
}
