package volumes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
)

// share makes mounts propagate between the volume on the host and the containers that ask for that
// (mountPropagation). For that, the volume must be on a shared mount. If it is not, it becomes a
// shared mount of its own. The administrator has to share the mount of a hostPath.
func (b *bringUp) share(volume string, path string) error {
	if !propagates(&b.pod.Spec, volume) || !strings.HasPrefix(path, b.path+"/") {
		return nil
	}
	mount, err := mountOf(path)
	if err != nil {
		return fmt.Errorf("find the mount that volume %q is on: %w", volume, err)
	}
	if mount.shared {
		return nil
	}
	if mount.point != path {
		if err := b.m.deps.Mounter.MountSensitiveWithoutSystemdWithMountFlags(path, path, "", []string{"bind"},
			nil, nil); err != nil {
			return fmt.Errorf("make volume %q a mount of its own: %w", volume, err)
		}
	}
	if err := unix.Mount("", path, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share the mounts of volume %q: %w", volume, &os.PathError{Op: "mount", Path: path, Err: err})
	}
	return nil
}

// propagates reports whether a container mounts the volume with mount propagation.
func propagates(spec *v1.PodSpec, volume string) bool {
	for container := range pods.Containers(spec) {
		if slices.ContainsFunc(container.VolumeMounts, func(m v1.VolumeMount) bool {
			return m.Name == volume && m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone
		}) {
			return true
		}
	}
	return false
}

// mountAt is a mount that a path lies on.
type mountAt struct {
	point  string
	shared bool
}

// mountOf returns the mount that path lies on, by the kernel's mount table.
func mountOf(path string) (mountAt, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return mountAt{}, err
	}
	infos, err := mountinfo.GetMounts(mountinfo.ParentsFilter(real))
	if err != nil {
		return mountAt{}, err
	}
	var found *mountinfo.Info
	for _, info := range infos { // of several mounts at one point, the last is on top
		if found == nil || len(info.Mountpoint) >= len(found.Mountpoint) {
			found = info
		}
	}
	if found == nil {
		return mountAt{}, fmt.Errorf("no mount above %s", path)
	}
	at := mountAt{
		point: found.Mountpoint,
		shared: slices.ContainsFunc(strings.Fields(found.Optional), func(tag string) bool {
			return strings.HasPrefix(tag, "shared:")
		}),
	}
	if at.point == real {
		at.point = path
	}
	return at, nil
}
