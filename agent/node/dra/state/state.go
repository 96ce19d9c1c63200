// Package state reads and writes the file in which a kubelet keeps the resource claims of its pods.
//
// Purpose: berth takes over a kubelet's file, and a kubelet takes over berth's. The names in the
// file are the kubelet's (pkg/kubelet/cm/dra/state, release 1.36).
//
// Truth owned: the format. Package dra owns the content.
//
// Concurrency: the functions have no state.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/berthd/berth/internal/atomicfile"
)

// File is the file's name in the agent's root directory.
const File = "dra_manager_state"

// kind and apiVersion are those of the file's data.
const (
	kind       = "DRACheckpoint"
	apiVersion = "checkpoint.dra.kubelet.k8s.io/v1"
)

// Claim is a resource claim that pods of the node have. DriverState has the drivers of all devices
// that the scheduler chose for it, even if a driver gave none.
type Claim struct {
	ClaimUID    types.UID
	ClaimName   string
	Namespace   string
	PodUIDs     sets.Set[types.UID]
	DriverState map[string]Driver
}

// Driver is what a driver has prepared for a claim; no devices while it has prepared none.
type Driver struct {
	Devices []Device
}

// Device is one device of a claim.
type Device struct {
	PoolName     string
	DeviceName   string
	ShareID      *types.UID
	RequestNames []string
	CDIDeviceIDs []string
}

// content is the data in the file.
type content struct {
	metav1.TypeMeta
	ClaimInfoStateList []Claim
}

// file is the whole file: the data as JSON in a string, and the CRC-32 of that string.
type file struct {
	Data     string
	Checksum uint32
}

// Read returns the claims of the file at path; none if there is no file. A file that is cut short,
// or whose checksum is wrong, is an error.
func Read(path string) ([]Claim, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the resource claims of pods: %w", err)
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("reading the resource claims of pods in %s: %w", path, err)
	}
	if sum := crc32.ChecksumIEEE([]byte(f.Data)); sum != f.Checksum {
		return nil, fmt.Errorf("reading the resource claims of pods in %s: its checksum is %d, but its content has %d",
			path, f.Checksum, sum)
	}
	var c content
	if err := json.Unmarshal([]byte(f.Data), &c); err != nil {
		return nil, fmt.Errorf("reading the resource claims of pods in %s: %w", path, err)
	}
	return c.ClaimInfoStateList, nil
}

// Write replaces the file at path.
func Write(path string, claims []Claim) error {
	inner, err := json.Marshal(content{
		TypeMeta: metav1.TypeMeta{Kind: kind, APIVersion: apiVersion}, ClaimInfoStateList: claims,
	})
	if err != nil {
		return fmt.Errorf("writing the resource claims of pods: %w", err)
	}
	data, err := json.Marshal(file{Data: string(inner), Checksum: crc32.ChecksumIEEE(inner)})
	if err != nil {
		return fmt.Errorf("writing the resource claims of pods: %w", err)
	}
	if err := atomicfile.Write(path, data, 0o600, atomicfile.OverPowerLoss); err != nil {
		return fmt.Errorf("writing the resource claims of pods: %w", err)
	}
	return nil
}
