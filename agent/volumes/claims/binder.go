package claims

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/atomicfile"
)

// Version is the version of the file's format. A file of another version is refused and not
// changed.
const Version = 1

// Objects are the local objects. Nobody may change them.
type Objects interface {
	// Claim returns the claim, nil if there is none.
	Claim(namespace, name string) *v1.PersistentVolumeClaim
	// PersistentVolumes returns all volumes.
	PersistentVolumes() []*v1.PersistentVolume
}

// Config are the settings of a [Binder].
type Config struct {
	// File is the file of the bindings, an absolute path.
	File string
	// NodeLabels are the node's labels.
	NodeLabels map[string]string
	// PodExists reports whether anything of a pod may still be there. If not, a claim for only one
	// pod is free again.
	PodExists func(uid types.UID) bool
	Logger    *slog.Logger
}

// Binder binds claims to volumes and remembers the bindings. Make it with [New].
type Binder struct {
	cfg     Config
	objects Objects

	mu       sync.Mutex
	bindings []binding
	loaded   bool
}

// state is the content of the file.
type state struct {
	Version  int       `json:"version"`
	Bindings []binding `json:"bindings"`
}

// binding is one claim's volume.
type binding struct {
	Volume string `json:"volume"`
	// Claim is namespace/name. It is empty for a volume that its claim has left.
	Claim string `json:"claim,omitempty"`
	// Pod is the only pod that uses a claim of access mode ReadWriteOncePod. It is empty for other
	// claims.
	Pod types.UID `json:"pod,omitempty"`
}

// New returns a Binder. The file is read when it is first needed.
func New(cfg Config, objects Objects) *Binder {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Binder{cfg: cfg, objects: objects}
}

// Resolve returns the volume of a pod's claim. It binds the claim first if it is not bound. The
// binding is on disk before Resolve returns. The error says why the claim has no volume yet, or
// that another pod has the claim for itself.
func (b *Binder) Resolve(pod *v1.Pod, name string) (*v1.PersistentVolume, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.load(); err != nil {
		return nil, err
	}
	claim := b.objects.Claim(pod.Namespace, name)
	if claim == nil {
		return nil, fmt.Errorf("persistentvolumeclaim %q not found", name)
	}
	volume, err := Choose(Input{
		Claim:      claim,
		Volumes:    b.objects.PersistentVolumes(),
		Bound:      b.bound(),
		NodeLabels: b.cfg.NodeLabels,
		Exists:     b.exists,
	})
	if err != nil {
		return nil, err
	}
	next := binding{Volume: volume.Name, Claim: Key(claim)}
	if slices.Contains(claim.Spec.AccessModes, v1.ReadWriteOncePod) {
		if user := b.user(next); user != "" && user != pod.UID && b.cfg.PodExists(user) {
			return nil, errors.New(
				"node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode")
		}
		next.Pod = pod.UID
	}
	if slices.Contains(b.bindings, next) {
		return volume, nil
	}
	b.cfg.Logger.Info("bound claim to volume", "claim", next.Claim, "volume", next.Volume)
	if err := b.replace(b.with(next)); err != nil {
		return nil, err
	}
	return volume, nil
}

// with returns the bindings with one more. A volume that the claim had before keeps an entry,
// because no other claim may get the data in it.
func (b *Binder) with(next binding) []binding {
	out := []binding{next}
	for _, old := range b.bindings {
		switch {
		case old.Volume == next.Volume:
		case old.Claim == next.Claim:
			out = append(out, binding{Volume: old.Volume})
		default:
			out = append(out, old)
		}
	}
	return out
}

// Release ends the binding of a volume whose manifest has gone. If the volume comes back, the first
// claim that asks can have it.
func (b *Binder) Release(volume string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.load(); err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(b.bindings), func(old binding) bool { return old.Volume == volume })
	if len(left) == len(b.bindings) {
		return nil
	}
	return b.replace(left)
}

// bound returns which claim has each volume.
func (b *Binder) bound() map[string]string {
	out := make(map[string]string, len(b.bindings))
	for _, each := range b.bindings {
		out[each.Volume] = each.Claim
	}
	return out
}

func (b *Binder) exists(claim string) bool {
	namespace, name, _ := strings.Cut(claim, "/")
	return b.objects.Claim(namespace, name) != nil
}

// user returns the pod that has the claim for itself.
func (b *Binder) user(of binding) types.UID {
	for _, each := range b.bindings {
		if each.Volume == of.Volume && each.Claim == of.Claim {
			return each.Pod
		}
	}
	return ""
}

// load reads the file, once. If the file cannot be used, every call returns an error: without the
// file, a claim could get another claim's data.
func (b *Binder) load() error {
	if b.loaded {
		return nil
	}
	data, err := os.ReadFile(b.cfg.File)
	if errors.Is(err, fs.ErrNotExist) {
		b.loaded = true
		return nil
	}
	var s state
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err == nil && s.Version != Version {
		err = fmt.Errorf("it has version %d, and this agent reads version %d", s.Version, Version)
	}
	if err != nil {
		return fmt.Errorf("read the bindings of claims in %s: %w", b.cfg.File, err)
	}
	b.bindings, b.loaded = s.Bindings, true
	return nil
}

// replace makes bindings the current ones, first on disk.
func (b *Binder) replace(bindings []binding) error {
	data, err := json.MarshalIndent(state{Version: Version, Bindings: bindings}, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(b.cfg.File), 0o700)
	}
	if err == nil {
		// Bindings decide about data that outlives a power loss. Without them, another claim could
		// get the volume.
		err = atomicfile.Write(b.cfg.File, data, 0o600, atomicfile.OverPowerLoss)
	}
	if err != nil {
		return fmt.Errorf("write the bindings of claims to %s: %w", b.cfg.File, err)
	}
	b.bindings = bindings
	return nil
}
