package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Has reports whether a pod has volumes that are not down, by the records on the disk.
func (n *Node) Has(uid types.UID) (bool, error) {
	held, err := n.held(uid)
	return len(held) > 0, err
}

// Down unpublishes all of a pod's volumes, and unstages those that no other pod has. It needs no
// knowledge of the pod. After an error it goes on with the other volumes, and the next call goes on
// where the last call ended. Nothing may use the volumes any more.
func (n *Node) Down(ctx context.Context, uid types.UID) error {
	if err := checkName(string(uid)); err != nil {
		return err
	}
	held, err := n.held(uid)
	if err != nil {
		return err
	}
	var errs []error
	for k, r := range held {
		operation := "UnmountVolume.TearDown"
		if k.block {
			operation = "UnmapVolume.UnmapPodDevice"
		}
		if err := n.takeDown(ctx, uid, k, r); err != nil {
			errs = append(errs, fmt.Errorf("%s failed for volume %q : %w", operation, k.name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	n.release(uid)
	return nil
}

// takeDown takes down one volume of a pod. r is nil if its record is damaged.
func (n *Node) takeDown(ctx context.Context, uid types.UID, k key, r *record) error {
	if r == nil {
		return n.downUnknown(uid, k)
	}
	return n.down(ctx, uid, k, r)
}

// downUnknown takes down a volume whose driver is not known any more: it unmounts what is mounted.
// If the volume is staged, [Node.PruneStaged] unstages it later, because no pod has it.
func (n *Node) downUnknown(uid types.UID, k key) error {
	n.deps.Logger.Warn("the record of a CSI driver's volume is damaged: it is unmounted without its driver", "uid", uid,
		"volume", k.name)
	if k.block {
		if err := n.unmapDevice(uid, k.name); err != nil {
			return err
		}
	}
	if err := n.removeMountPoint(n.target(uid, k)); err != nil {
		return err
	}
	return n.erase(uid, k)
}

// down takes down one volume of a pod.
func (n *Node) down(ctx context.Context, uid types.UID, k key, r *record) error {
	driver, err := n.deps.Drivers.Get(r.Driver)
	if err != nil {
		return fmt.Errorf("kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: %w", err)
	}
	c, err := n.deps.Drivers.connect(driver)
	if err != nil {
		return err
	}
	defer c.close()
	unique := uniqueName(r.Driver, r.Handle)
	unlock, err := n.lock(ctx, unique)
	if err != nil {
		return err
	}
	defer unlock()
	target := n.target(uid, k)
	if k.block {
		// a kubelet's only record is the link, which is removed next
		if err := n.keep(uid, k, *r); err != nil {
			return err
		}
		if err := n.unmapDevice(uid, k.name); err != nil {
			return err
		}
	}
	_, err = bounded(ctx, func(ctx context.Context) (*csiapi.NodeUnpublishVolumeResponse, error) {
		return c.node.NodeUnpublishVolume(ctx,
			&csiapi.NodeUnpublishVolumeRequest{VolumeId: r.Handle, TargetPath: target})
	})
	if err != nil && !isGone(err) {
		return fmt.Errorf("kubernetes.io/csi: Unmounter.TearDownAt failed: %w", err)
	}
	if err := n.removeMountPoint(target); err != nil {
		return err
	}
	if r.Lifecycle != "Ephemeral" {
		others, err := n.hasOthers(uid, k, r)
		if err != nil {
			return err
		}
		if !others {
			if err := n.unstage(ctx, c, r); err != nil {
				return err
			}
		}
	}
	return n.erase(uid, k)
}

// removeAll removes files and empty directories, one after the other.
func removeAll(paths ...string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// unstage asks for a volume to be unstaged. The caller has its lock.
func (n *Node) unstage(ctx context.Context, c *client, r *record) error {
	dir, staged := n.stageRecordDir(r), n.stagedAt(r)
	n.setStaged(uniqueName(r.Driver, r.Handle), false)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Lstat(staged); r.Block && errors.Is(err, fs.ErrNotExist) {
		return n.forgetDevice(r)
	}
	_, err := bounded(ctx, func(ctx context.Context) (*csiapi.NodeUnstageVolumeResponse, error) {
		return c.node.NodeUnstageVolume(ctx,
			&csiapi.NodeUnstageVolumeRequest{VolumeId: r.Handle, StagingTargetPath: staged})
	})
	if err != nil && !isGone(err) {
		return fmt.Errorf("kubernetes.io/csi: attacher.UnmountDevice failed: %w", err)
	}
	if err := n.removeMountPoint(staged); err != nil {
		return err
	}
	if r.Block {
		return n.forgetDevice(r)
	}
	return removeAll(filepath.Join(dir, dataFile), dir)
}

// forgetDevice removes what is left of a device that no pod has.
func (n *Node) forgetDevice(r *record) error {
	data := n.stageRecordDir(r)
	dir := filepath.Dir(data)
	return removeAll(filepath.Join(n.blockDir(), "publish", r.Volume), filepath.Join(dir, "dev"),
		filepath.Join(data, dataFile), data, dir)
}

// removeMountPoint removes the directory on which a driver mounted a volume. First it unmounts what
// a driver that was cut off has left there.
func (n *Node) removeMountPoint(path string) error {
	for range 8 { // the driver may have mounted more than once
		mounted, err := n.deps.IsMounted(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && mounted {
			err = n.deps.Unmount(path)
		}
		if err != nil {
			return fmt.Errorf("remove mount point %s: %w", path, err)
		}
		if !mounted {
			break
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove mount point: %w", err)
	}
	return nil
}

// PruneStaged unstages volumes that no pod of the node has: an agent or a kubelet that was cut off
// has left them. It leaves volumes alone whose drivers are not registered. A driver that does not
// answer holds up only its own volumes, and its first silence ends its turn.
func (n *Node) PruneStaged(ctx context.Context) error {
	staged, err := n.stagedRecords()
	if err != nil || len(staged) == 0 {
		return err
	}
	if err := n.surveyOnce(); err != nil {
		return err
	}
	var mu sync.Mutex
	var errs []error
	var turns errgroup.Group
	for _, records := range staged {
		turns.Go(func() error {
			for _, r := range records {
				err := n.pruneStaged(ctx, r)
				if err == nil {
					continue
				}
				mu.Lock()
				errs = append(errs, fmt.Errorf("volume %s of CSI driver %s: %w", r.Handle, r.Driver, err))
				mu.Unlock()
				if isSilence(err) {
					break
				}
			}
			return nil
		})
	}
	_ = turns.Wait() // errs has them all
	return errors.Join(errs...)
}

// stagedRecords returns the records of all volumes that are staged, by their drivers.
func (n *Node) stagedRecords() (map[string][]*record, error) {
	dirs, err := filepath.Glob(filepath.Join(n.cfg.RootDir, "plugins/kubernetes.io/csi/*/*"))
	if err != nil {
		return nil, err
	}
	devices, err := filepath.Glob(filepath.Join(n.blockDir(), "*", "data"))
	if err != nil {
		return nil, err
	}
	out := map[string][]*record{}
	for _, dir := range append(dirs, devices...) {
		r, err := readRecord(dir)
		if err != nil || r == nil {
			continue
		}
		r.Block = filepath.Base(dir) == "data" && filepath.Dir(filepath.Dir(dir)) == n.blockDir()
		if n.stageRecordDir(r) == dir {
			out[r.Driver] = append(out[r.Driver], r)
		}
	}
	return out, nil
}

func (n *Node) pruneStaged(ctx context.Context, r *record) error {
	driver, err := n.deps.Drivers.Get(r.Driver)
	if err != nil {
		return nil // later, when the driver is registered
	}
	unlock, err := n.lock(ctx, uniqueName(r.Driver, r.Handle))
	if err != nil {
		return err
	}
	defer unlock()
	if used, err := n.hasOthers("", key{}, r); err != nil || used {
		return err
	}
	c, err := n.deps.Drivers.connect(driver)
	if err != nil {
		return err
	}
	defer c.close()
	n.deps.Logger.Info("unstaging a volume that no pod has", "driver", r.Driver, "volume", r.Handle)
	return n.unstage(ctx, c, r)
}

// isStaged reports whether this process has staged a volume.
func (n *Node) isStaged(volume v1.UniqueVolumeName) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.staged[volume]
}

func (n *Node) setStaged(volume v1.UniqueVolumeName, yes bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if yes {
		n.staged[volume] = true
	} else {
		delete(n.staged, volume)
	}
}
