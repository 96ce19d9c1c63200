package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/tasks"
	"github.com/berthd/berth/internal/mounttable"
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
	do := func(ctx context.Context) error {
		if err := tasks.Hold(ctx); err != nil {
			return err
		}
		return b.m.makeShared(volume, path, mount.point == path)
	}
	if b.dynamic.Brief == nil {
		return do(b.ctx)
	}
	return b.dynamic.Brief("share/"+volume, path, do)
}

// makeShared shares the mount on path, which it makes unless there is one.
func (m *Manager) makeShared(volume, path string, isMount bool) error {
	if !isMount {
		if err := m.deps.Mounter.MountSensitiveWithoutSystemdWithMountFlags(path, path, "", []string{"bind"},
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

// mountOf returns the mount that path lies on, by the kernel's mount table. What is mounted on path
// is not looked at, because its server may be silent.
func mountOf(path string) (mountAt, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return mountAt{}, err
	}
	real := filepath.Join(parent, filepath.Base(path))
	found, err := mounttable.Of(real)
	if err != nil {
		return mountAt{}, err
	}
	at := mountAt{point: found.Mountpoint, shared: peerGroup(found) != ""}
	if at.point == real {
		at.point = path
	}
	return at, nil
}

// peerGroup returns the group of mounts that have the same mounts on them; empty for a mount that
// is not shared.
func peerGroup(mount *mountinfo.Info) string {
	for tag := range strings.FieldsSeq(mount.Optional) {
		if group, ok := strings.CutPrefix(tag, "shared:"); ok {
			return group
		}
	}
	return ""
}

// loosen lets what is mounted beneath dir, an absolute path without symbolic links, be unmounted
// there alone. A bind mount of a shared mount is its peer: it has all that the node mounts inside
// of the volume, and what is unmounted on one peer is unmounted on all. So each mount beneath dir
// that has mounts on it, and a peer elsewhere, becomes a slave of that peer.
func loosen(dir string) error {
	all, err := mounttable.Mounts()
	if err != nil {
		return fmt.Errorf("read mount table: %w", err)
	}
	var inside []*mountinfo.Info
	carries, elsewhere := map[int]bool{}, map[string]bool{}
	for _, mount := range all {
		if mount.Mountpoint == dir || strings.HasPrefix(mount.Mountpoint, dir+"/") {
			inside = append(inside, mount)
			carries[mount.Parent] = true
		} else if group := peerGroup(mount); group != "" {
			elsewhere[group] = true
		}
	}
	for _, mount := range outsideNFS(inside, filepath.Dir(dir)) { // dir may be an NFS mount itself
		if !carries[mount.ID] || !elsewhere[peerGroup(mount)] {
			continue
		}
		err := unix.Mount("", mount.Mountpoint, "", unix.MS_SLAVE, "")
		// A mount that another one hides is not found. What is on it cannot be unmounted yet, either.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return &os.PathError{Op: "mount as a slave", Path: mount.Mountpoint, Err: err}
		}
	}
	return nil
}
