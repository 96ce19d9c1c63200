package csi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Failed is an error of an operation that the kubelet's events name.
type Failed struct {
	// Operation is that name, such as MapVolume.MapPodDevice. While is what the operation was
	// doing; it may be empty.
	Operation, While string
	Err              error
}

// Error returns the cause's text.
func (f *Failed) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Failed) Unwrap() error { return f.Err }

// blockDir is the node's directory for block devices of drivers.
func (n *Node) blockDir() string {
	return filepath.Join(n.cfg.RootDir, "plugins/kubernetes.io/csi", devicesName)
}

// devicePath is the link to a device in a pod's directory.
func (n *Node) devicePath(uid types.UID, name string) string {
	return filepath.Join(n.podDir(uid), devicesName, pluginDir, name)
}

// globalPath is a pod's own mount of a device. A kubelet that takes over counts these mounts.
func (n *Node) globalPath(uid types.UID, name string) string {
	return filepath.Join(n.blockDir(), name, "dev", string(uid))
}

// MapPath returns the directory in which the pods that use a device have their mounts of it.
func (n *Node) MapPath(v *Volume) string { return filepath.Dir(n.globalPath(v.Pod.UID, v.Name)) }

// isMapped reports whether a pod has a link to a block device.
func (n *Node) isMapped(v *Volume) bool {
	return IsBlockDevice(n.devicePath(v.Pod.UID, v.Name)) == nil
}

// IsBlockDevice returns an error if a path, or the target of the link there, is not a block device.
func IsBlockDevice(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("path %q does not exist", path)
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeDevice:
		return fmt.Errorf("path %q is not a block device", path)
	}
	return nil
}

// prepareDevice makes the directories of a device that a driver publishes. The driver makes the
// file in them. The record is also written for a driver that does not stage, as a kubelet does.
func (n *Node) prepareDevice(v *Volume) error {
	r := n.recordOf(v)
	err := os.MkdirAll(filepath.Dir(n.target(v.Pod.UID, v.key())), dirMode)
	if err == nil {
		err = writeRecord(n.stageRecordDir(&r), r)
	}
	if err != nil {
		return fmt.Errorf("kubernetes.io/csi: blockMapper.publishVolumeForBlock failed to create dir: %w", err)
	}
	return nil
}

// mapDevice gives a pod the device that a driver has published.
func (n *Node) mapDevice(v *Volume) error {
	target, global := n.target(v.Pod.UID, v.key()), n.globalPath(v.Pod.UID, v.Name)
	err := IsBlockDevice(target)
	if err == nil {
		err = n.bindDevice(target, global)
	}
	if err == nil {
		_, err = Link(target, n.devicePath(v.Pod.UID, v.Name))
	}
	if err != nil {
		return &Failed{Operation: "MapVolume.MapBlockVolume", Err: err}
	}
	return nil
}

// bindDevice mounts a device on a file, unless something is mounted there.
func (n *Node) bindDevice(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), dirMode); err != nil {
		return err
	}
	mounted, err := n.deps.IsMounted(to)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.WriteFile(to, nil, dataMode)
	}
	if err != nil || mounted {
		return err
	}
	return n.deps.Bind(from, to)
}

// Link makes a symbolic link. It replaces a link that exists, unless that is the same one. It
// returns whether it made the link.
func Link(to, at string) (bool, error) {
	if have, err := os.Readlink(at); err == nil && have == to {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(at), dirMode); err != nil {
		return false, err
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := os.Symlink(to, at); err != nil {
		return false, err
	}
	return true, nil
}

// unmapDevice removes a device from a pod.
func (n *Node) unmapDevice(uid types.UID, name string) error {
	if err := os.Remove(n.devicePath(uid, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return n.Unmap(n.globalPath(uid, name))
}

// Unmap removes a file on which a device is mounted. It also detaches the loop device with which a
// kubelet keeps the device open.
func (n *Node) Unmap(path string) error {
	if err := detachLoops(path); err != nil {
		return err
	}
	return n.removeMountPoint(path)
}

// detachLoops detaches the loop devices of a file.
func detachLoops(path string) error {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || strings.TrimSuffix(string(text), "\n") != path {
			continue // the loop device is another file's, or has just gone
		}
		device := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(file)))
		loop, err := os.OpenFile(device, os.O_RDONLY, 0)
		if err != nil {
			return fmt.Errorf("detach %s: %w", device, err)
		}
		err = unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0)
		_ = loop.Close()
		if err != nil && !errors.Is(err, unix.ENXIO) {
			return fmt.Errorf("detach %s: %w", device, err)
		}
	}
	return nil
}
