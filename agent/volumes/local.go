package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"
	"k8s.io/utils/exec"

	"github.com/berthd/berth/agent/volumes/csi"
)

// defaultFSType is the file system that is made on an empty device if its PersistentVolume names
// none, as the API documents it.
const defaultFSType = "ext4"

// localVolume is a PersistentVolume on a directory or a block device of this node.
type localVolume struct {
	// name is the PersistentVolume's name.
	name string
	// path is the directory or the device.
	path     string
	fsType   string
	readOnly bool
	options  []string
}

// operationPrepare is the operation that fails, in the kubelet's words, if there is nothing to
// mount.
const operationPrepare = "MountVolume.NewMounter initialization"

func (l *localVolume) dir() string { return "volumes/" + pluginLocal + "/" + l.name }
func (l *localVolume) ready() string {
	return "plugins/" + pluginLocal + "/" + l.name + "/" + readyFile
}

// link is the pod's link to the volume's device.
func (l *localVolume) link() string { return "volumeDevices/" + pluginLocal + "/" + l.name }

// localDevice brings up a local volume that containers get as a block device: a link to the device,
// as a kubelet makes it.
func (b *bringUp) localDevice(l *localVolume) (Mount, bool, error) {
	mount := Mount{HostPath: filepath.Join(b.path, l.link()), ReadOnly: l.readOnly, Device: true}
	if slices.Contains(strings.Split(l.path, "/"), "..") {
		return mount, false, fmt.Errorf("invalid path: %s must not contain '..'", l.path)
	}
	err := csi.IsBlockDevice(l.path)
	isNew := false
	if err == nil {
		isNew, err = csi.Link(l.path, mount.HostPath)
	}
	if err != nil {
		return mount, false, &csi.Failed{Operation: "MapVolume.MapBlockVolume", Err: err}
	}
	if isNew {
		b.mapped(l.name, "volumeMapPath", filepath.Dir(mount.HostPath))
	}
	return mount, true, nil
}

// mapped records that the pod has a volume's device now. A kubelet's event tells of path by kind.
func (b *bringUp) mapped(volume, kind, path string) {
	b.m.event(b.pod, v1.EventTypeNormal, "SuccessfulMountVolume",
		fmt.Sprintf("MapVolume.MapPodDevice succeeded for volume %q %s %q", volume, kind, path))
}

// unmapLocal removes what a kubelet has mounted of a pod's local devices outside of the pod's
// directory.
func (m *Manager) unmapLocal(uid types.UID) error {
	paths, err := filepath.Glob(filepath.Join(m.cfg.RootDir, "plugins", pluginLocal, "volumeDevices", "*", string(uid)))
	if err != nil {
		return err
	}
	for _, path := range paths {
		err = errors.Join(err, m.csi.Unmap(path))
	}
	return err
}

// local brings up a local volume. Its directory, or the file system on its device, is mounted in
// the pod's own directory. It is given to the pod's fsGroup, unless another pod has it.
func (b *bringUp) local(l *localVolume) (Mount, bool, error) {
	mount := Mount{HostPath: filepath.Join(b.path, l.dir()), ReadOnly: l.readOnly, SELinuxRelabel: !l.readOnly}
	if slices.Contains(strings.Split(l.path, "/"), "..") {
		return mount, false, fmt.Errorf("invalid path: %s must not contain '..'", l.path)
	}
	err := b.beside(work{
		key: l.dir(), doing: fmt.Sprintf("mounting %s and setting the owner of its files", l.path), isDone: l.isUp,
		// If pods share a volume, one of them brings it up at a time.
		turn: func(ctx context.Context) (leave func(), err error) { return b.m.turns.Take(ctx, l.name) },
		do:   l.bringUp,
	})
	return mount, err == nil, err
}

// isUp reports whether the volume is mounted and its owner set.
func (l *localVolume) isUp(b *bringUp) (bool, error) {
	mounted, err := isMountPoint(filepath.Join(b.path, l.dir()))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !mounted {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = b.root.Lstat(l.ready())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// bringUp does what isUp asks for, and goes on where an earlier attempt was cut off.
func (l *localVolume) bringUp(ctx context.Context, b *bringUp) error {
	for _, dir := range []string{l.dir(), filepath.Dir(l.ready())} {
		if err := b.root.MkdirAll(dir, dirMode); err != nil {
			return err
		}
	}
	target := filepath.Join(b.path, l.dir())
	mounted, err := isMountPoint(target)
	if err != nil {
		return err
	}
	used, err := b.m.usedByOthers(b.pod.UID, l)
	if err != nil {
		return err
	}
	if !mounted {
		if err := b.root.Remove(l.ready()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err // it was ready before the machine stopped
		}
		if err := l.mount(b.m.deps.Mounter, target, used); err != nil {
			return err
		}
	}
	if !l.readOnly && b.fsGroup() != nil {
		if err := l.own(ctx, b, target, used); err != nil {
			return err
		}
	}
	return touch(b.root, l.ready())
}

// mount mounts the directory or the device. used says that another pod has it mounted. A kubelet
// refuses anything else while it prepares to mount.
func (l *localVolume) mount(mounter Mounter, target string, used bool) error {
	info, err := os.Stat(l.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &csi.Failed{Operation: operationPrepare, Err: fmt.Errorf("path %q does not exist", l.path)}
	case err != nil:
		return err
	case info.IsDir():
		return mounter.MountSensitiveWithoutSystemdWithMountFlags(l.path, target, "",
			append([]string{"bind"}, l.mountOptions()...), nil, nil)
	case info.Mode().Type() == fs.ModeDevice:
		return l.mountDevice(mounter, target, used)
	}
	return &csi.Failed{Operation: operationPrepare, Err: errors.New("only directory and block device are supported")}
}

func (l *localVolume) mountOptions() []string {
	options := slices.Clone(l.options)
	if l.readOnly {
		options = append(options, "ro")
	}
	return options
}

// mountDevice mounts the file system on the device. An empty device is formatted first. A device
// that is mounted nowhere is checked. Every pod mounts the device for itself: to the kernel it is
// one file system.
func (l *localVolume) mountDevice(mounter Mounter, target string, used bool) error {
	fsType := l.fsType
	if fsType == "" {
		fsType = defaultFSType
	}
	var err error
	if used {
		err = mounter.MountSensitiveWithoutSystemdWithMountFlags(l.path, target, fsType, l.mountOptions(), nil, nil)
	} else {
		err = mount.NewSafeFormatAndMount(mount.NewWithoutSystemd(""), exec.New()).FormatAndMount(l.path, target,
			fsType, l.mountOptions())
	}
	if err != nil {
		return fmt.Errorf("local: failed to mount device %s at %s (fstype: %s), error %w", l.path, target, fsType, err)
	}
	return nil
}

// own gives the volume to the pod's fsGroup. If another pod has the volume mounted, its owner
// stays, and an event reports that if the owner is another group.
func (l *localVolume) own(ctx context.Context, b *bringUp, target string, used bool) error {
	group := *b.fsGroup()
	if !used {
		return b.m.changeOwner(ctx, b.pod, ownership{dir: target, group: group, policy: b.changePolicy()})
	}
	var stat unix.Stat_t
	if err := unix.Stat(target, &stat); err != nil {
		return fmt.Errorf("failed to check fsGroup for %s (%w)", l.path, err)
	}
	if int64(stat.Gid) != group {
		b.m.event(b.pod, v1.EventTypeWarning, "AlreadyMountedVolume", fmt.Sprintf(
			"The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.", group,
			l.name, stat.Gid))
	}
	return nil
}

func (b *bringUp) changePolicy() v1.PodFSGroupChangePolicy {
	if p := b.pod.Spec.SecurityContext.FSGroupChangePolicy; p != nil {
		return *p
	}
	return v1.FSGroupChangeAlways
}

// usedByOthers reports whether another pod has the volume up.
func (m *Manager) usedByOthers(self types.UID, l *localVolume) (bool, error) {
	uids, err := m.List(context.Background())
	if err != nil {
		return false, err
	}
	for _, uid := range uids {
		if uid == self {
			continue
		}
		if _, err := os.Lstat(filepath.Join(m.PodDir(uid), l.ready())); err != nil {
			continue
		}
		if mounted, err := isMountPoint(filepath.Join(m.PodDir(uid), l.dir())); err == nil && mounted {
			return true, nil
		}
	}
	return false, nil
}
