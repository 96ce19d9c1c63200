package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/agent/volumes/expand"
)

// againAfterError is when a volume is published again after that failed.
const againAfterError = 10 * time.Second

// newCSI makes the part of the manager that speaks with CSI drivers. Without drivers it has none.
func (m *Manager) newCSI() *csi.Node {
	deps := m.deps.CSI
	deps.IsMounted, deps.Unmount, deps.Logger = isMounted, m.unmount, m.deps.Logger
	deps.Bind = func(from, to string) error {
		return m.deps.Mounter.MountSensitiveWithoutSystemdWithMountFlags(from, to, "", []string{"bind"}, nil, nil)
	}
	if deps.Drivers == nil {
		deps.Drivers = csi.NewDrivers(func() {}, nil, nil)
	}
	return csi.NewNode(csi.Config{RootDir: m.cfg.RootDir, NodeName: m.cfg.NodeName}, deps)
}

// CSI returns what brings up and takes down volumes of CSI drivers.
func (m *Manager) CSI() *csi.Node { return m.csi }

// isMounted says whether something is mounted on path, by the mount table: what is mounted may be away. No such path is fs.ErrNotExist.
func isMounted(path string) (bool, error) {
	mounted, err := inMountTable(path)
	if err != nil || mounted {
		return mounted, err
	}
	_, err = os.Lstat(path)
	return false, err
}

// csi brings up a volume of a CSI driver. One that is up stays so whatever becomes of its driver; one whose driver wants that is published again from time to
// time, and one that is to grow does so while it is up. use is nil for one that never grows.
func (b *bringUp) csi(v *csi.Volume, use *expand.Use) (Mount, bool, error) {
	node := b.m.csi
	mount := Mount{HostPath: node.Path(v), ReadOnly: v.ReadOnly, SELinuxRelabel: !v.ReadOnly && !v.Block, Device: v.Block}
	isUp := func(*bringUp) (bool, error) {
		up, _, err := node.IsUp(v)
		return up, err
	}
	up, err := isUp(b)
	if err != nil {
		return mount, false, err
	}
	if up {
		mount.Again = node.Again(v)
		if mount.Again.IsZero() || time.Now().Before(mount.Again) {
			return b.grow(v, use, mount), true, nil
		}
	}
	if err := node.Prepare(v); err != nil {
		return mount, up, err
	}
	if !up {
		err := b.beside(csiKey+v.Name, fmt.Sprintf("CSI driver %s is bringing up volume %s", v.Driver, v.Name), isUp, bringUpCSI(v, use))
		return mount, err == nil, err
	}
	isFresh := func(*bringUp) (bool, error) {
		again := node.Again(v)
		return again.IsZero() || time.Now().Before(again), nil
	}
	err = b.beside(csiKey+v.Name, fmt.Sprintf("CSI driver %s is publishing volume %s again", v.Driver, v.Name), isFresh, bringUpCSI(v, nil))
	switch {
	case errors.Is(err, ErrUnderWay):
		mount.Again, err = time.Time{}, nil // it is up meanwhile, and the end of the task wakes the pod
	case err != nil:
		mount.Again = time.Now().Add(againAfterError)
	default:
		mount.Again = node.Again(v)
	}
	return mount, true, err
}

// csiKey begins the keys under which CSI drivers bring up volumes.
const csiKey = "volumes/" + pluginCSI + "/"

// Interruptible says whether what runs under a key of [Slow] may be ended before it has ended by itself. What a CSI driver has begun may not: it could
// mount a volume after it was asked to take it down.
func Interruptible(key string) bool { return !strings.HasPrefix(key, csiKey) }

// bringUpCSI has the driver bring up a volume, gives its files to the pod's group where that is left to the node, and has it grow where that waits for it to be up.
func bringUpCSI(v *csi.Volume, use *expand.Use) func(context.Context, *bringUp) error {
	return func(ctx context.Context, b *bringUp) error {
		own, err := b.m.csi.Up(ctx, v)
		if err != nil {
			return err
		}
		if own {
			if err := b.m.changeOwner(ctx, b.pod, ownership{dir: b.m.csi.Path(v), group: *b.fsGroup(), policy: b.changePolicy()}); err != nil {
				return err
			}
		}
		if err := b.growFirst(ctx, v, use); err != nil {
			return err
		}
		return b.m.csi.Done(v)
	}
}

// releaseKey is the key under which a pod's volumes are given back to their drivers.
const releaseKey = "release"

// Release gives a pod's volumes back to those who have to take them down, which may last: it is done beside the caller's pass. The error is [ErrUnderWay] until it has
// been done. [Manager.Remove] comes after it. The pod's containers must have ended.
func (m *Manager) Release(ctx context.Context, uid types.UID, slow Slow) error {
	has, err := m.csi.Has(uid)
	if err != nil {
		return err
	}
	if !has {
		m.csi.Forget(uid)
		return nil
	}
	do := func(ctx context.Context) error {
		podsPath, err := filepath.EvalSymlinks(m.podsDir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := m.unmountAll(ctx, filepath.Join(podsPath, string(uid), subPathsDir)); err != nil {
			return err
		}
		return m.csi.Down(ctx, uid)
	}
	if slow == nil {
		return do(ctx)
	}
	ended, err := slow(releaseKey, do)
	if err != nil || ended {
		return err
	}
	return &classified{text: "CSI drivers are taking down the pod's volumes", class: ErrUnderWay}
}
