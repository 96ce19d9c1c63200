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
)

const (
	// Unit is what the number of ids of a pod is a multiple of: a namespace needs all ids that 16 bits can say.
	Unit = 65536
	// mappingsFile is the file in a pod's directory, the kubelet's.
	mappingsFile = "userns"
	// maxMappings is the largest such file in bytes that is read.
	maxMappings = 64 << 10
)

// Range is a run of ids of the node.
type Range struct {
	First, Length uint32
}

// Config is what an [Allocator] is told once.
type Config struct {
	// PodsDir is the directory of the pods' directories.
	PodsDir string
	// IDsPerPod is how many ids each pod gets, a multiple of [Unit]; 0 means one Unit.
	IDsPerPod uint32
	// MaxPods is for how many pods there must be ids.
	MaxPods int
	// Host returns the node's ids; see [HostRange]. It is asked when a pod needs some, until it has answered.
	Host func() (Range, error)
	// Used returns the ids that the runtime's sandboxes of a pod have, which is asked where the pod's file cannot be read. Nil knows of none, and makes that an error.
	Used func(uid types.UID) ([]Range, error)
	// Logger may be nil.
	Logger *slog.Logger
}

// Allocator gives out ids. Make it with [New].
type Allocator struct {
	cfg Config
	// mu makes choosing a range and writing it down one act.
	mu sync.Mutex
	// host is what Host answered.
	host *Range
}

// New returns an Allocator. It touches nothing on disk.
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

// check says why a range of the node cannot be cut up for its pods, in the kubelet's words.
func (c Config) check(r Range) error {
	switch {
	case c.IDsPerPod%Unit != 0:
		return fmt.Errorf("kubelet user namespace length %d is not a multiple of %d", c.IDsPerPod, Unit)
	case r.First%c.IDsPerPod != 0:
		return fmt.Errorf("kubelet user assigned ID %d is not a multiple of %d", r.First, c.IDsPerPod)
	case r.First < c.IDsPerPod:
		// The host's own users, root among them, must never be a pod's.
		return fmt.Errorf("kubelet user assigned ID %d must be greater or equal to %d", r.First, c.IDsPerPod)
	case r.Length%c.IDsPerPod != 0:
		return fmt.Errorf("kubelet user assigned IDs length %d is not a multiple of %d", r.Length, c.IDsPerPod)
	case int(r.Length/c.IDsPerPod) < c.MaxPods:
		return fmt.Errorf("kubelet user assigned IDs are not enough to support %d pods", c.MaxPods)
	}
	return nil
}

// mapping and mappings are the file's format.
type mapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

type mappings struct {
	UIDs []mapping `json:"uidMappings"`
	GIDs []mapping `json:"gidMappings"`
}

// Ensure returns the pod's id mapping: the one that it has, else a new one, which is on disk before it is returned. The pod's directory must exist. A file that cannot
// be read is replaced by what the pod's sandboxes have. The error's text is for the pod.
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

// allocate chooses the lowest range that no pod has and writes it down.
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

// recover gives a pod whose file cannot be read the ids that its sandbox has, or new ones where it has none.
func (a *Allocator) recover(uid types.UID, damage error) (Range, error) {
	used, err := a.used(uid, damage)
	if err != nil {
		return Range{}, damage
	}
	for _, r := range used {
		if r != used[0] {
			return Range{}, damage // which of them the next sandbox is to have, nobody knows
		}
	}
	a.cfg.Logger.Warn("ids of a pod could not be read; taking those of its sandbox", "uid", uid, "ids", used, "err", damage)
	if len(used) == 0 {
		return a.allocate(uid)
	}
	return used[0], a.write(uid, used[0])
}

// used asks for the ids of a pod's sandboxes, because its file has this damage.
func (a *Allocator) used(uid types.UID, damage error) ([]Range, error) {
	if a.cfg.Used == nil {
		return nil, damage
	}
	return a.cfg.Used(uid)
}

// taken returns the ranges of all pods that have a directory. Of a pod whose file cannot be read they are those of its sandboxes; where these cannot be known
// either, nobody gets ids: they might be this pod's.
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
				return nil, fmt.Errorf("which ids the pod with UID %s has is not known, so that none can be given out until it is gone: %w", e.Name(), usedErr)
			}
			out = append(out, used...)
		}
	}
	return out, nil
}

// overlaps compares in 64 bits: the last id may be the last of 32.
func overlaps(taken []Range, r Range) bool {
	for _, t := range taken {
		if uint64(t.First) < uint64(r.First)+uint64(r.Length) && uint64(r.First) < uint64(t.First)+uint64(t.Length) {
			return true
		}
	}
	return false
}

// read returns what a pod was given; an error that is [fs.ErrNotExist] says that it was given nothing.
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

// parse reads a pod's file. A mapping must be one run of ids from 0, the same for users and groups, and must not begin with the host's root.
func parse(data []byte) (Range, error) {
	var m mappings
	if err := json.Unmarshal(data, &m); err != nil {
		return Range{}, fmt.Errorf("invalid user namespace mappings file: %w", err)
	}
	switch {
	case len(m.UIDs) != 1 || len(m.GIDs) != 1:
		return Range{}, errors.New("invalid user namespace configuration: there must be one mapping of users and one of groups")
	case m.UIDs[0] != m.GIDs[0]:
		return Range{}, errors.New("invalid user namespace configuration: the mappings of users and groups differ")
	case m.UIDs[0].ContainerID != 0:
		return Range{}, errors.New("invalid user namespace configuration: id 0 must be mapped")
	case m.UIDs[0].HostID < Unit || m.UIDs[0].HostID%Unit != 0 || m.UIDs[0].Length == 0 || m.UIDs[0].Length%Unit != 0:
		return Range{}, fmt.Errorf("invalid user namespace configuration: %d ids from %d of the host", m.UIDs[0].Length, m.UIDs[0].HostID)
	}
	return Range{First: m.UIDs[0].HostID, Length: m.UIDs[0].Length}, nil
}

// write writes a pod's file, so that it is there whole or not at all, also after a crash.
func (a *Allocator) write(uid types.UID, r Range) error {
	one := []mapping{{HostID: r.First, ContainerID: 0, Length: r.Length}}
	data, err := json.Marshal(mappings{UIDs: one, GIDs: one})
	if err != nil {
		return err
	}
	dir, err := os.OpenRoot(filepath.Join(a.cfg.PodsDir, string(uid)))
	if err != nil {
		return fmt.Errorf("writing the pod's ids: %w", err)
	}
	defer func() { _ = dir.Close() }()
	const next = mappingsFile + ".new"
	if err = writeFile(dir, next, data); err == nil {
		err = dir.Rename(next, mappingsFile)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("writing the pod's ids: %w", err)
	}
	return nil
}

func writeFile(dir *os.Root, name string, data []byte) error {
	f, err := dir.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir *os.Root) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
