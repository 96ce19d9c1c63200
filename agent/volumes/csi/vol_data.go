package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthd/berth/internal/atomicfile"
)

// dirMode and dataMode are the modes of the node's own directories and files.
const (
	dirMode  = 0o750
	dataMode = 0o600
)

// record is the content of a vol_data.json. The names are the kubelet's.
type record struct {
	Volume     string `json:"specVolID,omitempty"`
	Handle     string `json:"volumeHandle"`
	Driver     string `json:"driverName"`
	Node       string `json:"nodeName,omitempty"`
	Attachment string `json:"attachmentID,omitempty"`
	Lifecycle  string `json:"volumeLifecycleMode,omitempty"`

	// Block says that the volume is a block device. It follows from the place of the record.
	Block bool `json:"-"`
}

func (n *Node) recordOf(v *Volume) record {
	r := record{
		Volume:     v.Name,
		Handle:     v.Handle,
		Driver:     v.Driver,
		Node:       n.cfg.NodeName,
		Attachment: AttachmentName(v.Handle, v.Driver, n.cfg.NodeName),
		Lifecycle:  "Persistent",
	}
	if v.Inline {
		r.Lifecycle = "Ephemeral"
	}
	r.Block = v.Block
	return r
}

// errDamaged means that a file was read, but is not a record. A power loss may have left it so.
var errDamaged = errors.New("the record is damaged")

// readRecord reads the vol_data.json in a directory, nil if there is none. The error is errDamaged
// if the content is no record.
func readRecord(dir string) (*record, error) {
	data, err := os.ReadFile(filepath.Join(dir, dataFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what volume is at %s: %w", dir, err)
	}
	r := &record{}
	if err = json.Unmarshal(data, r); err == nil {
		err = checkName(r.Driver)
	}
	if err != nil {
		return nil, fmt.Errorf("read what volume is at %s: %w: %w", dir, errDamaged, err)
	}
	return r, nil
}

// writeRecord writes vol_data.json so that it outlives a power loss, unless it has the same content
// already.
func writeRecord(dir string, r record) error {
	if have, err := readRecord(dir); err == nil && have != nil {
		have.Block = r.Block
		if *have == r {
			return nil
		}
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, dataFile), data, atomicfile.OverPowerLoss)
}

// writeFile replaces a file, and makes its directory.
func writeFile(path string, data []byte, keep atomicfile.Keep) error {
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return err
	}
	return atomicfile.Write(path, data, dataMode, keep)
}

// progress is how far a volume came: the content of the file "ready".
type progress struct {
	// Up says that the volume was published and given to its group. Otherwise this was only begun.
	Up bool `json:"up"`
	// Boot is the run of the machine in which that was, by the kernel's name for the run.
	Boot string `json:"boot"`
	// Mounted says that something was mounted there. If it is mounted no more, the volume is not
	// up.
	Mounted bool `json:"mounted,omitempty"`
	// Republish says that the driver wants to publish the volume again from time to time.
	Republish bool `json:"republish,omitempty"`
	// Attached says that a controller attached the volume.
	Attached bool `json:"attached,omitempty"`
}

func readProgress(path string) *progress {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	p := &progress{}
	if json.Unmarshal(data, p) != nil {
		return nil
	}
	return p
}

// boot names this run of the machine. It is empty if the kernel does not say.
func boot() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
