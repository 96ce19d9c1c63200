// Package checkpoint reads and writes the file in which a kubelet keeps who has which devices.
//
// Purpose: berth takes over a kubelet's file, and a kubelet takes over berth's. The file's checksum
// covers the names of the Go types and of this package, so they are the kubelet's
// (pkg/kubelet/cm/devicemanager/checkpoint, release 1.36).
//
// Truth owned: the format. Package devices owns the content.
//
// Concurrency: the functions have no state.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/berthd/berth/internal/atomicfile"
	"github.com/berthd/berth/internal/checksum"
)

// File is the file's name in the directory of the device plugins' sockets.
const File = "kubelet_internal_checkpoint"

// DevicesPerNUMA has the ids of devices by their NUMA node; -1 is for devices without one.
type DevicesPerNUMA map[int64][]string

// PodDevicesEntry says which devices of a resource a container has. AllocResp is what the plugin
// answered, a ContainerAllocateResponse as protobuf.
type PodDevicesEntry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     DevicesPerNUMA
	AllocResp     []byte
}

// checkpointData is what the checksum covers.
type checkpointData struct {
	PodDeviceEntries  []PodDevicesEntry
	RegisteredDevices map[string][]string
}

// file is the whole file.
type file struct {
	Data     checkpointData
	Checksum checksum.Checksum
}

// Read returns what the file at path has: who has which devices, and the healthy devices of each
// resource. A file that does not exist is empty. A file that is cut short, or whose checksum is
// wrong, is an error.
func Read(path string) ([]PodDevicesEntry, map[string][]string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the devices of pods: %w", err)
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, nil, fmt.Errorf("reading the devices of pods in %s: %w", path, err)
	}
	if sum := checksum.Of(f.Data); sum != f.Checksum {
		return nil, nil, fmt.Errorf("reading the devices of pods in %s: its checksum is %d, but its content has %d", path,
			f.Checksum, sum)
	}
	return f.Data.PodDeviceEntries, f.Data.RegisteredDevices, nil
}

// Write replaces the file at path.
func Write(path string, entries []PodDevicesEntry, registered map[string][]string) error {
	plain, err := json.Marshal(checkpointData{entries, registered})
	if err != nil {
		return fmt.Errorf("writing the devices of pods: %w", err)
	}
	// the checksum is that of what a reader of the file gets: nil and empty lists differ in it
	var f file
	if err := json.Unmarshal(plain, &f.Data); err != nil {
		return fmt.Errorf("writing the devices of pods: %w", err)
	}
	f.Checksum = checksum.Of(f.Data)
	data, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("writing the devices of pods: %w", err)
	}
	if err := atomicfile.Write(path, data, 0o600, atomicfile.OverPowerLoss); err != nil {
		return fmt.Errorf("writing the devices of pods: %w", err)
	}
	return nil
}
