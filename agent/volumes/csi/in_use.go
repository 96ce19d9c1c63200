package csi

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// held returns the volumes of a pod that are on record. The value is nil if the record is damaged.
func (n *Node) held(uid types.UID) (map[key]*record, error) {
	out := map[key]*record{}
	own := func(k key) string { return n.recordDir(uid, k) }
	// The record of a kubelet's device lies beside where the device is staged.
	kubelets := func(k key) string { return n.stageRecordDir(&record{Volume: k.name, Block: true}) }
	for _, from := range []struct {
		dir   string
		block bool
		at    func(key) string
	}{
		{filepath.Join(n.podDir(uid), "volumes", pluginDir), false, own},
		{filepath.Join(n.podDir(uid), "plugins", pluginDir, devicesName), true, own},
		{filepath.Join(n.podDir(uid), devicesName, pluginDir), true, kubelets},
	} {
		entries, err := os.ReadDir(from.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look for volumes of CSI drivers of pod %s: %w", uid, err)
		}
		for _, entry := range entries {
			k := key{entry.Name(), from.block}
			if out[k] != nil {
				continue
			}
			r, err := readRecord(from.at(k))
			if err != nil && !errors.Is(err, errDamaged) {
				return nil, err
			}
			if err != nil {
				out[k] = nil
			}
			if r != nil {
				if r.Block = k.block; r.Block {
					r.Volume = k.name
				}
				out[k] = r
			}
		}
	}
	return out, nil
}

// pods returns the pods that have a directory.
func (n *Node) pods() ([]types.UID, error) {
	entries, err := os.ReadDir(filepath.Join(n.cfg.RootDir, "pods"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []types.UID
	for _, entry := range entries {
		out = append(out, types.UID(entry.Name()))
	}
	return out, err
}

// hasOthers reports whether another pod, or another volume of the pod, has or may have the driver's
// volume.
func (n *Node) hasOthers(uid types.UID, k key, r *record) (bool, error) {
	uids, err := n.pods()
	if err != nil {
		return false, err
	}
	for _, other := range uids {
		held, err := n.held(other)
		if err != nil {
			return false, err
		}
		for at, have := range held {
			if (other != uid || at != k) && (have == nil || have.Driver == r.Driver && have.Handle == r.Handle) {
				return true, nil
			}
		}
	}
	return false, nil
}

// alone returns an error if another pod of the node has a volume that only one pod may have. The
// caller has the volume's lock, so that the first of two pods gets the volume.
func (n *Node) alone(v *Volume) error {
	if !slices.Contains(v.Modes, v1.ReadWriteOncePod) {
		return nil
	}
	if own, err := readRecord(n.recordDir(v.Pod.UID, v.key())); err != nil || own != nil {
		return err // the pod has it already
	}
	wanted := n.recordOf(v)
	others, err := n.hasOthers(v.Pod.UID, v.key(), &wanted)
	if err == nil && others {
		err = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
	}
	return err
}

// recall finds on the disk which attached volumes are in use.
func (n *Node) recall() {
	uids, err := n.pods()
	if err != nil {
		n.deps.Logger.Warn("volumes of CSI drivers in use not found", "err", err)
	}
	for _, uid := range uids {
		held, err := n.held(uid)
		if err != nil {
			n.deps.Logger.Warn("volumes of CSI drivers in use not found", "err", err)
		}
		for k, r := range held {
			if r == nil {
				continue
			}
			p := readProgress(n.readyPath(uid, k))
			// A kubelet's record, or a volume that was only begun, does not say whether the volume
			// was attached. To report it as attached does no harm.
			if r.Lifecycle != "Ephemeral" && (p == nil || p.Attached || !p.Up) {
				n.setUsed(uid, uniqueName(r.Driver, r.Handle))
			}
		}
	}
}

// use records that a pod wants a volume that has to be attached.
func (n *Node) use(uid types.UID, volume v1.UniqueVolumeName) {
	if n.setUsed(uid, volume) {
		n.deps.Changed()
	}
}

func (n *Node) setUsed(uid types.UID, volume v1.UniqueVolumeName) (news bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.inUse[uid][volume] {
		return false
	}
	if n.inUse[uid] == nil {
		n.inUse[uid] = map[v1.UniqueVolumeName]bool{}
	}
	n.inUse[uid][volume] = true
	return true
}

// Forget records that a pod wants no volumes any more. Volumes that it still has stay in use until
// they are down.
func (n *Node) Forget(uid types.UID) {
	if held, err := n.held(uid); err == nil && len(held) == 0 {
		n.release(uid)
	}
}

func (n *Node) release(uid types.UID) {
	n.mu.Lock()
	had := len(n.inUse[uid]) > 0
	delete(n.inUse, uid)
	n.mu.Unlock()
	if had {
		n.deps.Changed()
	}
}

// InUse returns the volumes that need attaching and that pods of this node want or have. A
// controller must not detach them.
func (n *Node) InUse() []v1.UniqueVolumeName {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[v1.UniqueVolumeName]bool{}
	for _, volumes := range n.inUse {
		maps.Copy(all, volumes)
	}
	return slices.Sorted(maps.Keys(all))
}

// Users returns the pods that want or have a volume that needs attaching.
func (n *Node) Users() []types.UID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.inUse))
}
