package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Has says whether a pod has volumes that are not down, by what is on the disk.
func (n *Node) Has(uid types.UID) (bool, error) {
	held, err := n.held(uid)
	return len(held) > 0, err
}

// Down has all of a pod's volumes unpublished, and unstaged those that no other pod has. It needs no knowledge of the pod, and goes on after an error with the
// others; who calls again goes on where the last call ended. Nothing may use the volumes any more.
func (n *Node) Down(ctx context.Context, uid types.UID) error {
	if err := checkName(string(uid)); err != nil {
		return err
	}
	held, err := n.held(uid)
	if err != nil {
		return err
	}
	var errs []error
	for name, r := range held {
		if err := n.down(ctx, uid, name, r); err != nil {
			errs = append(errs, fmt.Errorf("UnmountVolume.TearDown failed for volume %q : %w", name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	n.release(uid)
	return nil
}

// down takes down one volume of a pod.
func (n *Node) down(ctx context.Context, uid types.UID, name string, r *record) error {
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
	dir := n.volumeDir(uid, name)
	target := filepath.Join(dir, mountName)
	_, err = bounded(ctx, func(ctx context.Context) (*csiapi.NodeUnpublishVolumeResponse, error) {
		return c.node.NodeUnpublishVolume(ctx, &csiapi.NodeUnpublishVolumeRequest{VolumeId: r.Handle, TargetPath: target})
	})
	if err != nil && !isGone(err) {
		return fmt.Errorf("kubernetes.io/csi: Unmounter.TearDownAt failed: %w", err)
	}
	if err := n.removeMountPoint(target); err != nil {
		return err
	}
	if r.Lifecycle != "Ephemeral" {
		others, err := n.hasOthers(uid, name, r)
		if err != nil {
			return err
		}
		if !others {
			if err := n.unstage(ctx, c, r); err != nil {
				return err
			}
		}
	}
	for _, path := range []string{filepath.Join(n.podDir(uid), "plugins", pluginDir, name, readyFile), filepath.Join(dir, dataFile), dir} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// unstage has a volume unstaged. The caller has its lock.
func (n *Node) unstage(ctx context.Context, c *client, r *record) error {
	dir := n.stageDir(r.Driver, r.Handle)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	staged := filepath.Join(dir, stagedName)
	n.setStaged(uniqueName(r.Driver, r.Handle), false)
	_, err := bounded(ctx, func(ctx context.Context) (*csiapi.NodeUnstageVolumeResponse, error) {
		return c.node.NodeUnstageVolume(ctx, &csiapi.NodeUnstageVolumeRequest{VolumeId: r.Handle, StagingTargetPath: staged})
	})
	if err != nil && !isGone(err) {
		return fmt.Errorf("kubernetes.io/csi: attacher.UnmountDevice failed: %w", err)
	}
	if err := n.removeMountPoint(staged); err != nil {
		return err
	}
	for _, path := range []string{filepath.Join(dir, dataFile), dir} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeMountPoint removes the directory on which a driver mounted a volume, and what a driver that was cut off has left mounted there.
func (n *Node) removeMountPoint(path string) error {
	for range 8 { // it may have mounted more than once
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

// PruneStaged has volumes unstaged that no pod of the node has: an agent or a kubelet that was cut off has left them. Volumes of drivers that are not here are
// left alone.
func (n *Node) PruneStaged(ctx context.Context) error {
	dirs, err := filepath.Glob(filepath.Join(n.cfg.RootDir, "plugins/kubernetes.io/csi/*/*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		r, err := readRecord(dir)
		if err != nil || r == nil || n.stageDir(r.Driver, r.Handle) != dir {
			continue
		}
		if err := n.pruneStaged(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("volume %s of CSI driver %s: %w", r.Handle, r.Driver, err))
		}
	}
	return errors.Join(errs...)
}

func (n *Node) pruneStaged(ctx context.Context, r *record) error {
	driver, err := n.deps.Drivers.Get(r.Driver)
	if err != nil {
		return nil // later, when it is there
	}
	unlock, err := n.lock(ctx, uniqueName(r.Driver, r.Handle))
	if err != nil {
		return err
	}
	defer unlock()
	if used, err := n.hasOthers("", "", r); err != nil || used {
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

// isStaged says whether this process has had a volume staged.
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
