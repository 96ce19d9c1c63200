package state

import (
	"encoding/json"
	"fmt"

	"k8s.io/utils/cpuset"

	"github.com/berthd/berth/internal/checksum"
)

// CPUManagerCheckpoint is the file in the format that has the CPUs of whole pods. The checksum is
// computed with the checksum 0.
type CPUManagerCheckpoint struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	PodEntries    PodCPUAssignments            `json:"podEntries,omitempty"`
	Checksum      checksum.Checksum            `json:"checksum"`
}

// CPUManagerCheckpointV2 is the file in the format without them.
type CPUManagerCheckpointV2 struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	Checksum      checksum.Checksum            `json:"checksum"`
}

// PodCPUAssignments are the CPUs of whole pods.
type PodCPUAssignments map[string]PodEntry

// PodEntry has the CPUs of a whole pod.
type PodEntry struct {
	CPUSet cpuset.CPUSet
}

// entryText is a PodEntry in the file.
type entryText struct {
	CPUSet string `json:"cpuSet,omitempty"`
}

// MarshalJSON writes the CPUs as text.
func (p PodEntry) MarshalJSON() ([]byte, error) { return json.Marshal(entryText{p.CPUSet.String()}) }

// UnmarshalJSON reads the CPUs from their text.
func (p *PodEntry) UnmarshalJSON(data []byte) error {
	var text entryText
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	set, err := cpuset.Parse(text.CPUSet)
	if err != nil {
		return fmt.Errorf("the CPUs of a whole pod: %w", err)
	}
	p.CPUSet = set
	return nil
}

// sum returns the checksum of the content. A kubelet's maps are empty where the file has none.
func (c CPUManagerCheckpoint) sum() checksum.Checksum {
	c.Checksum = 0
	if c.Entries == nil {
		c.Entries = map[string]map[string]string{}
	}
	if c.PodEntries == nil {
		c.PodEntries = PodCPUAssignments{}
	}
	return checksum.Of(&c)
}

// old returns the file in the format without whole pods, with its checksum. The type had another
// name when it was the only one, and the checksum is that of the name.
func (c CPUManagerCheckpoint) old() CPUManagerCheckpointV2 {
	out := CPUManagerCheckpointV2{PolicyName: c.PolicyName, DefaultCPUSet: c.DefaultCPUSet, Entries: c.Entries}
	if out.Entries == nil {
		out.Entries = map[string]map[string]string{}
	}
	out.Checksum = checksum.As(&out, "CPUManagerCheckpointV2", "CPUManagerCheckpoint")
	return out
}

// encode returns the file's text.
func encode(s State) ([]byte, error) {
	c := CPUManagerCheckpoint{
		PolicyName: s.Policy, DefaultCPUSet: s.Shared.String(), Entries: map[string]map[string]string{},
		PodEntries: PodCPUAssignments{},
	}
	for uid, containers := range s.Assigned {
		c.Entries[uid] = map[string]string{}
		for name, set := range containers {
			c.Entries[uid][name] = set.String()
		}
	}
	if s.Pods == nil {
		return json.Marshal(c.old())
	}
	for uid, set := range s.Pods {
		c.PodEntries[uid] = PodEntry{set}
	}
	c.Checksum = c.sum()
	return json.Marshal(c)
}
