package csi

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// recall finds on the disk which attached volumes are in use.
func (n *Node) recall() {
	err := n.survey(func(uid types.UID, k key, r *record) {
		p := readProgress(n.readyPath(uid, k))
		// A kubelet's record, or a volume that was only begun, does not say whether the volume was
		// attached. To report it as attached does no harm.
		if r.Lifecycle != "Ephemeral" && (p == nil || p.Attached || !p.Up) {
			n.setUsed(uid, uniqueName(r.Driver, r.Handle))
		}
	})
	if err != nil {
		n.deps.Logger.Warn("volumes of CSI drivers in use not found", "err", err)
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
