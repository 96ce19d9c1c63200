package userns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/atomicfile"
)

const (
	// Unit divides the number of ids of a pod: a user namespace needs all ids that 16 bits can
	// express.
	Unit = 65536
	// mappingsFile is the name of the file in a pod's directory. The name is the kubelet's.
	mappingsFile = "userns"
	// maxMappings is the largest such file in bytes that is read.
	maxMappings = 64 << 10
)

// Range is a range of ids of the node.
type Range struct {
	First, Length uint32
}

// Config configures an [Allocator].
type Config struct {
	// PodsDir is the directory with a directory for each pod.
	PodsDir string
	// IDsPerPod is how many ids each pod gets, a multiple of [Unit]; 0 means one Unit.
	IDsPerPod uint32
	// MaxPods is the number of pods for which there must be enough ids.
	MaxPods int
	// Host returns the node's ids; see [HostRange]. It is called when a pod needs ids, until it has
	// succeeded once.
	Host func() (Range, error)
	// Used returns the ids that the runtime's sandboxes of a pod have. It is called if the pod's
	// file cannot be read. If Used is nil, such a file is an error.
	Used func(uid types.UID) ([]Range, error)
	// Logger may be nil.
	Logger *slog.Logger
}

// Allocator assigns ids to pods. Make it with [New].
type Allocator struct {
	cfg Config
	// mu makes the choice and the writing of a range one action.
	mu sync.Mutex
	// host is the result of Host.
	host *Range
}

// New returns an Allocator. It does not touch the disk.
func New(cfg Config) *Allocator {
	if cfg.IDsPerPod == 0 {
		cfg.IDsPerPod = Unit
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Allocator{cfg: cfg}
}

// hostRange returns the node's ids.
func (a *Allocator) hostRange() (Range, error) {
	if a.host == nil {
		r, err := a.cfg.Host()
		if err == nil {
			err = a.cfg.check(r)
		}
		if err != nil {
			return Range{}, err
		}
		a.host = &r
	}
	return *a.host, nil
}

// check returns an error, in the kubelet's words, if a range of the node cannot be divided among
// its pods.
func (c Config) check(r Range) error {
	switch {
	case c.IDsPerPod%Unit != 0:
		return fmt.Errorf("kubelet user namespace length %d is not a multiple of %d", c.IDsPerPod, Unit)
	case r.First%c.IDsPerPod != 0:
		return fmt.Errorf("kubelet user assigned ID %d is not a multiple of %d", r.First, c.IDsPerPod)
	case r.First < c.IDsPerPod:
		// A pod must never get the ids of the host's own users, such as root.
		return fmt.Errorf("kubelet user assigned ID %d must be greater or equal to %d", r.First, c.IDsPerPod)
	case r.Length%c.IDsPerPod != 0:
		return fmt.Errorf("kubelet user assigned IDs length %d is not a multiple of %d", r.Length, c.IDsPerPod)
	case int(r.Length/c.IDsPerPod) < c.MaxPods:
		return fmt.Errorf("kubelet user assigned IDs are not enough to support %d pods", c.MaxPods)
	}
	return nil
}

// mapping and mappings are the format of the file.
type mapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

type mappings struct {
	UIDs []mapping `json:"uidMappings"`
	GIDs []mapping `json:"gidMappings"`
}

// Ensure returns the pod's id mapping. If the pod has none, Ensure chooses a range and writes it to
// the disk before it returns. The pod's directory must exist. If the file cannot be read, Ensure
// replaces it by the ids of the pod's sandboxes. The text of the error is for the pod's status.
func (a *Allocator) Ensure(uid types.UID) (*runtimeapi.UserNamespace, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	own, err := a.read(uid)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		own, err = a.allocate(uid)
	default:
		own, err = a.recover(uid, err)
	}
	if err != nil {
		return nil, fmt.Errorf("user namespace: %w", err)
	}
	ids := []*runtimeapi.IDMapping{{HostId: own.First, ContainerId: 0, Length: own.Length}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}, nil
}

// allocate chooses the lowest range that no pod has and writes it to the pod's file.
func (a *Allocator) allocate(uid types.UID) (Range, error) {
	host, err := a.hostRange()
	if err != nil {
		return Range{}, err
	}
	taken, err := a.taken()
	if err != nil {
		return Range{}, err
	}
	for n := range host.Length / a.cfg.IDsPerPod {
		r := Range{First: host.First + n*a.cfg.IDsPerPod, Length: a.cfg.IDsPerPod}
		if overlaps(taken, r) {
			continue
		}
		return r, a.write(uid, r)
	}
	return Range{}, errors.New("could not find an empty slot to allocate a user namespace")
}

// recover gives a pod whose file cannot be read the ids of its sandbox, or new ids if it has no
// sandbox.
func (a *Allocator) recover(uid types.UID, damage error) (Range, error) {
	used, err := a.used(uid, damage)
	if err != nil {
		return Range{}, damage
	}
	for _, r := range used {
		if r != used[0] {
			return Range{}, damage // nobody knows which of these ids the next sandbox needs
		}
	}
	a.cfg.Logger.Warn("ids of a pod could not be read; taking those of its sandbox", "uid", uid, "ids", used,
		"err", damage)
	if len(used) == 0 {
		return a.allocate(uid)
	}
	return used[0], a.write(uid, used[0])
}

// used returns the ids of a pod's sandboxes. damage is why the pod's file cannot be read.
func (a *Allocator) used(uid types.UID, damage error) ([]Range, error) {
	if a.cfg.Used == nil {
		return nil, damage
	}
	return a.cfg.Used(uid)
}

// taken returns the ranges of all pods that have a directory. If a pod's file cannot be read, the
// ids of its sandboxes count. If these are not known either, taken fails and no pod gets ids,
// because they might be the ids of that pod.
func (a *Allocator) taken() ([]Range, error) {
	entries, err := os.ReadDir(a.cfg.PodsDir)
	if err != nil {
		return nil, fmt.Errorf("looking for the ids that are taken: %w", err)
	}
	var out []Range
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		r, err := a.read(types.UID(e.Name()))
		switch {
		case err == nil:
			out = append(out, r)
		case !errors.Is(err, fs.ErrNotExist):
			used, usedErr := a.used(types.UID(e.Name()), err)
			if usedErr != nil {
				a.cfg.Logger.Warn("ids of a pod are not known", "uid", e.Name(), "err", errors.Join(err, usedErr))
				return nil, fmt.Errorf("which ids the pod with UID %s has is not known, so that none can be given out "+
					"until it is gone: %w", e.Name(), usedErr)
			}
			out = append(out, used...)
		}
	}
	return out, nil
}

// overlaps compares in 64 bits, because the last id may be the last that 32 bits can express.
func overlaps(taken []Range, r Range) bool {
	for _, t := range taken {
		if uint64(t.First) < uint64(r.First)+uint64(r.Length) && uint64(r.First) < uint64(t.First)+uint64(t.Length) {
			return true
		}
	}
	return false
}

// read returns the range in a pod's file. The error is [fs.ErrNotExist] if the pod has no range.
func (a *Allocator) read(uid types.UID) (Range, error) {
	dir, err := os.OpenRoot(filepath.Join(a.cfg.PodsDir, string(uid)))
	if err != nil {
		return Range{}, err
	}
	defer func() { _ = dir.Close() }()
	info, err := dir.Lstat(mappingsFile)
	if err != nil {
		return Range{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxMappings {
		return Range{}, errors.New("invalid user namespace mappings file: it is no small regular file")
	}
	data, err := dir.ReadFile(mappingsFile)
	if err != nil {
		return Range{}, err
	}
	return parse(data)
}

// parse parses a pod's file. A mapping must be one range of ids from 0, equal for users and groups,
// and must not include the host's root.
func parse(data []byte) (Range, error) {
	var m mappings
	if err := json.Unmarshal(data, &m); err != nil {
		return Range{}, fmt.Errorf("invalid user namespace mappings file: %w", err)
	}
	switch {
	case len(m.UIDs) != 1 || len(m.GIDs) != 1:
		return Range{}, errors.New(
			"invalid user namespace configuration: there must be one mapping of users and one of groups")
	case m.UIDs[0] != m.GIDs[0]:
		return Range{}, errors.New("invalid user namespace configuration: the mappings of users and groups differ")
	case m.UIDs[0].ContainerID != 0:
		return Range{}, errors.New("invalid user namespace configuration: id 0 must be mapped")
	case m.UIDs[0].HostID < Unit || m.UIDs[0].HostID%Unit != 0 || m.UIDs[0].Length == 0 || m.UIDs[0].Length%Unit != 0:
		return Range{}, fmt.Errorf("invalid user namespace configuration: %d ids from %d of the host", m.UIDs[0].Length,
			m.UIDs[0].HostID)
	}
	return Range{First: m.UIDs[0].HostID, Length: m.UIDs[0].Length}, nil
}

// write replaces a pod's file. The file outlives a power loss, because the files that the pod has
// written on the node's volumes with these ids outlive it, too.
func (a *Allocator) write(uid types.UID, r Range) error {
	one := []mapping{{HostID: r.First, ContainerID: 0, Length: r.Length}}
	data, err := json.Marshal(mappings{UIDs: one, GIDs: one})
	if err != nil {
		return err
	}
	path := filepath.Join(a.cfg.PodsDir, string(uid), mappingsFile)
	if err := atomicfile.Write(path, data, 0o600, atomicfile.OverPowerLoss); err != nil {
		return fmt.Errorf("writing the pod's ids: %w", err)
	}
	return nil
}
