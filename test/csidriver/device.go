package csidriver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

// deviceSize is the size of volumes that are block devices, in bytes.
const deviceSize = 1 << 20

// loopMajor is the major number of loop devices.
const loopMajor = 7

// publishDevice mounts a volume's device on a file at the target path. It makes the file.
func (d *Driver) publishDevice(r *csiapi.NodePublishVolumeRequest) error {
	device, err := d.device(r.GetVolumeId())
	if err != nil {
		return err
	}
	file, err := os.OpenFile(r.GetTargetPath(), os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = file.Close()
	}
	if err != nil && !os.IsExist(err) {
		return err
	}
	return bind(device, r.GetTargetPath(), false)
}

// device returns the loop device of a volume. It attaches one if there is none.
func (d *Driver) device(handle string) (string, error) {
	d.loopsMu.Lock()
	defer d.loopsMu.Unlock()
	if loop := d.loops[handle]; loop != nil {
		return loop.Name(), nil
	}
	path := filepath.Join(d.Dir, "volumes", filepath.Base(handle)+".img")
	loop, err := AttachLoop(path)
	if err != nil {
		return "", err
	}
	if d.loops == nil {
		d.loops = map[string]*os.File{}
	}
	d.loops[handle] = loop
	return loop.Name(), nil
}

// forget detaches the loop device of a volume.
func (d *Driver) forget(handle string) {
	d.loopsMu.Lock()
	defer d.loopsMu.Unlock()
	if loop := d.loops[handle]; loop != nil {
		_ = loop.Close()
		delete(d.loops, handle)
	}
}

// openLoop opens a loop device by its number. If /dev is not a devtmpfs, it may have to make the
// device node.
func openLoop(number int) (*os.File, error) {
	path := fmt.Sprintf("/dev/loop%d", number)
	loop, err := os.OpenFile(path, os.O_RDWR, 0)
	if !errors.Is(err, os.ErrNotExist) {
		return loop, err
	}
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, uint32(number)))); err != nil &&
		!errors.Is(err, os.ErrExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

// AttachLoop attaches a loop device to a file, and makes the file if there is none. The device is
// detached when its last open file is closed, so keep the returned file.
func AttachLoop(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() == 0 && info.Mode().IsRegular() {
		if err := errors.Join(err, file.Truncate(deviceSize)); err != nil {
			return nil, err
		}
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for range 64 {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		loop, err := openLoop(number)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(file.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		copy(config.Info.File_name[:len(config.Info.File_name)-1], path)
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			return loop, nil
		}
		_ = loop.Close()
		if !errors.Is(err, unix.EBUSY) { // somebody else took the device
			return nil, fmt.Errorf("attach %s to %s: %w", loop.Name(), path, err)
		}
	}
	return nil, errors.New("no loop device is free")
}

// Loop attaches a loop device to a file. The device is detached when the returned file is closed,
// or at the test's end. The test is skipped on a machine without loop devices.
func Loop(t testing.TB, path string) *os.File {
	t.Helper()
	loop, err := AttachLoop(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		t.Skipf("needs loop devices: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = loop.Close() })
	return loop
}
