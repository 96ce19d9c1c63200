package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"

	"github.com/berthd/berth/internal/atomicfile"
)

const (
	// recordsDir is the folder of the records in the state directory.
	recordsDir = "attachments"
	// recordExtension ends the name of a record; the sandbox's ID is before it.
	recordExtension = ".json"
)

// record says that a sandbox is attached, or that somebody began to attach it.
type record struct {
	ID      string `json:"id"`
	NetNS   string `json:"netns"`
	Network string `json:"network"`
	// Config is the list of plugins as it was when the sandbox was attached.
	Config       json.RawMessage `json:"config"`
	Args         [][2]string     `json:"args"`
	Capabilities map[string]any  `json:"capabilities,omitempty"`
}

func newRecord(sandbox Sandbox, list *libcni.NetworkConfigList) *record {
	return &record{
		ID:      sandbox.ID,
		NetNS:   sandbox.NetNS,
		Network: list.Name,
		Config:  list.Bytes,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", sandbox.Namespace},
			{"K8S_POD_NAME", sandbox.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", sandbox.ID},
			{"K8S_POD_UID", sandbox.UID},
		},
		Capabilities: sandbox.Capabilities.args(),
	}
}

// runtimeConf returns what libcni gives the plugins beside their configuration.
func (r *record) runtimeConf() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID:    r.ID,
		NetNS:          r.NetNS,
		IfName:         Interface,
		Args:           r.Args,
		CapabilityArgs: r.Capabilities,
	}
}

// list returns the configuration of the time when the sandbox was attached.
func (r *record) list() (*libcni.NetworkConfigList, error) {
	list, err := libcni.NetworkConfFromBytes(r.Config)
	if err != nil {
		return nil, fmt.Errorf("the recorded configuration of network %q: %w", r.Network, err)
	}
	return list, nil
}

// records are the records of attachments on the disk, a file for each sandbox.
type records struct{ root *os.Root }

// openRecords opens the records in a state directory, and makes the directory if it is missing.
func openRecords(stateDir string) (records, error) {
	dir := filepath.Join(stateDir, recordsDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return records{}, fmt.Errorf("make the directory of network attachments: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return records{}, fmt.Errorf("open the directory of network attachments: %w", err)
	}
	return records{root: root}, nil
}

// add writes a record. It returns errdefs.ErrAlreadyExists if the sandbox has one.
func (r records) add(rec *record) error {
	if err := utils.ValidateContainerID(rec.ID); err != nil {
		return fmt.Errorf("attach sandbox %q: %w: %w", rec.ID, err, errdefs.ErrInvalidArgument)
	}
	name := rec.ID + recordExtension
	if _, err := r.root.Lstat(name); err == nil {
		return fmt.Errorf("attach sandbox %s: it is attached already: %w", rec.ID, errdefs.ErrAlreadyExists)
	}
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("record that sandbox %s is being attached: %w", rec.ID, err)
	}
	if err := atomicfile.WriteIn(r.root, name, data, 0o600, atomicfile.OverPowerLoss); err != nil {
		return fmt.Errorf("record that sandbox %s is being attached: %w", rec.ID, err)
	}
	return nil
}

// get returns fs.ErrNotExist if the sandbox has no record.
func (r records) get(id string) (*record, error) {
	if err := utils.ValidateContainerID(id); err != nil {
		return nil, fs.ErrNotExist // nothing was ever attached by that name
	}
	data, err := r.root.ReadFile(id + recordExtension)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("read how sandbox %s is attached: %w", id, err)
	}
	rec := &record{}
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, fmt.Errorf("read how sandbox %s is attached: %s is not a record: %w", id,
			filepath.Join(r.root.Name(), id+recordExtension), err)
	}
	return rec, nil
}

func (r records) remove(id string) error {
	if err := r.root.Remove(id + recordExtension); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget that sandbox %s was attached: %w", id, err)
	}
	return nil
}

// ids returns the sandboxes that have records.
func (r records) ids() ([]string, error) {
	entries, err := fs.ReadDir(r.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list the network attachments: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), recordExtension); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
