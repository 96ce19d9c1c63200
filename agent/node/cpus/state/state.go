// Package state reads and writes the file in which a kubelet's CPU manager keeps who has which
// CPUs.
//
// Purpose: berth takes over a kubelet's file, and a kubelet takes over berth's. The file's checksum
// covers the names of the Go type and of this package, so they are the kubelet's
// (pkg/kubelet/cm/cpumanager/state, release 1.36). A kubelet has two formats: the one with the CPUs
// of whole pods if its feature gate PodLevelResourceManagers is on, the one without if the gate is
// off. The formats have different checksums also if no pod has CPUs.
//
// Truth owned: the format. Package cpus owns the content.
//
// Concurrency: the functions have no state.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/utils/cpuset"

	"github.com/berthd/berth/internal/atomicfile"
	"github.com/berthd/berth/internal/checksum"
)

// File is the file's name in the agent's root directory.
const File = "cpu_manager_state"

// State is who has which CPUs.
type State struct {
	// Policy is the policy of the CPU manager: none or static.
	Policy string
	// Shared are the CPUs of all containers that have none of their own.
	Shared cpuset.CPUSet
	// Assigned are the CPUs of the containers that have their own, by pod and container.
	Assigned map[string]map[string]cpuset.CPUSet
	// Pods are the CPUs of pods as a whole, of which Assigned says which container has which. nil
	// makes [Write] use the format without them.
	Pods map[string]cpuset.CPUSet
}

// Read returns what the file at path has; nil if there is no file. A file that is cut short, or
// whose checksum is wrong, is an error.
func Read(path string) (*State, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no file is no error, and nothing is known
	}
	if err != nil {
		return nil, fmt.Errorf("reading the CPUs of pods: %w", err)
	}
	var c CPUManagerCheckpoint
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("reading the CPUs of pods in %s: %w", path, err)
	}
	if sum, ok := checksum.Verify(c.Checksum, c.sum(), c.old().Checksum, len(c.PodEntries) > 0); !ok {
		return nil, fmt.Errorf("reading the CPUs of pods in %s: its checksum is %d, but its content has %d", path,
			c.Checksum, sum)
	}
	out := &State{Policy: c.PolicyName, Assigned: map[string]map[string]cpuset.CPUSet{}}
	for uid, entry := range c.PodEntries {
		if out.Pods == nil {
			out.Pods = map[string]cpuset.CPUSet{}
		}
		out.Pods[uid] = entry.CPUSet
	}
	if out.Shared, err = cpuset.Parse(c.DefaultCPUSet); err != nil {
		return nil, fmt.Errorf("reading the CPUs of pods in %s: %w", path, err)
	}
	for uid, containers := range c.Entries {
		out.Assigned[uid] = map[string]cpuset.CPUSet{}
		for name, text := range containers {
			if out.Assigned[uid][name], err = cpuset.Parse(text); err != nil {
				return nil, fmt.Errorf("reading the CPUs of pods in %s: container %s of pod %s: %w", path, name, uid, err)
			}
		}
	}
	return out, nil
}

// Write replaces the file at path.
func Write(path string, s State) error {
	data, err := encode(s)
	if err != nil {
		return fmt.Errorf("writing the CPUs of pods: %w", err)
	}
	if err := atomicfile.Write(path, data, 0o600, atomicfile.OverPowerLoss); err != nil {
		return fmt.Errorf("writing the CPUs of pods: %w", err)
	}
	return nil
}
