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

// againAfterError is how long to wait before a volume is published again after that failed.
const againAfterError = 10 * time.Second

// newCSI makes the part of the manager that calls CSI drivers. Without drivers there are no such
// volumes.
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

// isMounted reports whether something is mounted on path, by the mount table, because what is
// mounted may not answer. The error is fs.ErrNotExist if there is no such path.
func isMounted(path string) (bool, error) {
	mounted, err := inMountTable(path)
	if err != nil || mounted {
		return mounted, err
	}
	_, err = os.Lstat(path)
	return false, err
}

// csi brings up a volume of a CSI driver. A volume that is up stays up, whatever happens to its
// driver. It is published again from time to time if its driver wants that, and it is expanded
// while it is up. use is nil for a volume that never grows.
func (b *bringUp) csi(v *csi.Volume, use *expand.Use) (Mount, bool, error) {
	node := b.m.csi
	mount := Mount{
		HostPath:       node.Path(v),
		ReadOnly:       v.ReadOnly,
		SELinuxRelabel: !v.ReadOnly && !v.Block,
		Device:         v.Block,
	}
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
		first := func(ctx context.Context, b *bringUp) error {
			err := bringUpCSI(v, use)(ctx, b)
			if err == nil && v.Block {
				b.mapped(v.Name, "globalMapPath", node.MapPath(v))
				b.mapped(v.Name, "volumeMapPath", filepath.Dir(mount.HostPath))
			}
			return err
		}
		err := b.beside(work{
			key: csiKey + v.Name, doing: fmt.Sprintf("CSI driver %s is bringing up volume %s", v.Driver, v.Name),
			isDone: isUp, do: first,
		})
		return mount, err == nil, err
	}
	isFresh := func(*bringUp) (bool, error) {
		again := node.Again(v)
		return again.IsZero() || time.Now().Before(again), nil
	}
	err = b.beside(work{
		key: csiKey + v.Name, doing: fmt.Sprintf("CSI driver %s is publishing volume %s again", v.Driver, v.Name),
		isDone: isFresh, do: bringUpCSI(v, nil),
	})
	switch {
	case errors.Is(err, ErrUnderWay):
		// it is up meanwhile, and the end of the task notifies the pod
		mount.Again, err = time.Time{}, nil
	case err != nil:
		mount.Again = time.Now().Add(againAfterError)
	default:
		mount.Again = node.Again(v)
	}
	return mount, true, err
}

// csiKey begins the keys under which CSI drivers bring up volumes.
const csiKey = "volumes/" + pluginCSI + "/"

// Interruptible reports whether the work under a key of [Slow] may be cut off. What a CSI driver
// has begun may not be cut off: the driver could mount a volume after it was asked to unmount it.
func Interruptible(key string) bool { return !strings.HasPrefix(key, csiKey) }

// bringUpCSI asks the driver to bring up a volume. It gives the volume's files to the pod's group
// if the driver leaves that to the node, and expands the volume if that has to wait until the
// volume is mounted.
func bringUpCSI(v *csi.Volume, use *expand.Use) func(context.Context, *bringUp) error {
	return func(ctx context.Context, b *bringUp) error {
		own, err := b.m.csi.Up(ctx, v)
		if err != nil {
			return err
		}
		if own {
			if err := b.m.changeOwner(ctx, b.pod, ownership{
				dir:    b.m.csi.Path(v),
				group:  *b.fsGroup(),
				policy: b.changePolicy(),
			}); err != nil {
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

// Release asks drivers to take down a pod's volumes. That may last, so it is done beside the
// caller's sync. The error is [ErrUnderWay] until it is done. [Manager.Remove] comes after it. The
// pod's containers must have ended.
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
