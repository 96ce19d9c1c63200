package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// The directories of volume plugins, as the kubelet's.
const (
	pluginEmptyDir    = "kubernetes.io~empty-dir"
	pluginConfigMap   = "kubernetes.io~configmap"
	pluginSecret      = "kubernetes.io~secret"
	pluginDownwardAPI = "kubernetes.io~downward-api"
	pluginProjected   = "kubernetes.io~projected"
)

const (
	// volumeMode is the mode of a volume's root: the directory above it keeps others out.
	volumeMode fs.FileMode = 0o777
	// fsGroupDirBits are added to directories of a pod with an fsGroup: what is created there belongs to the group, too.
	fsGroupDirBits fs.FileMode = fs.ModeSetgid | 0o110
	// readyFile says that a volume's directory was fully set up.
	readyFile = "ready"
	// wrapped begins the name under which the ready file of a volume with files in it is kept.
	wrapped = "wrapped_"
)

// storage is a directory to be made for a volume.
type storage struct {
	// plugin and volume make its path.
	plugin, volume string
	// meta is the directory of its ready file.
	meta string
	// memory asks for a tmpfs, of at most size bytes.
	memory bool
	size   int64
}

func (s *storage) dir() string   { return "volumes/" + s.plugin + "/" + s.volume }
func (s *storage) ready() string { return "plugins/" + pluginEmptyDir + "/" + s.meta + "/" + readyFile }

// emptyDir brings up an emptyDir. Once it is up it belongs to the containers: neither its mode nor its contents are touched again.
func (b *bringUp) emptyDir(i int, volume *v1.Volume) (Mount, bool, error) {
	s := storage{plugin: pluginEmptyDir, volume: volume.Name, meta: volume.Name}
	switch medium := volume.EmptyDir.Medium; medium {
	case v1.StorageMediumDefault:
	case v1.StorageMediumMemory:
		s.memory = true
		s.size = memorySize(b.pod, volume.EmptyDir, b.m.cfg.NodeAllocatable)
	default:
		return Mount{}, false, unsupported("spec.volumes[%d].emptyDir.medium: medium %q is not supported", i, medium)
	}
	if err := b.storage(&s); err != nil {
		return Mount{}, false, err
	}
	return Mount{HostPath: filepath.Join(b.path, s.dir()), SELinuxRelabel: true}, true, nil
}

// storage makes the directory, or finds it as it was made before.
func (b *bringUp) storage(s *storage) error {
	mounted, err := b.isUp(s)
	if err != nil || mounted {
		return err
	}
	if err := b.root.MkdirAll(filepath.Dir(s.dir()), dirMode); err != nil {
		return err
	}
	if err := b.root.Mkdir(s.dir(), volumeMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := b.setVolumeMode(s.dir()); err != nil {
		return err
	}
	if s.memory {
		if err := b.mountStorage(s); err != nil {
			return err
		}
	}
	return b.setReady(s)
}

// mountStorage mounts the tmpfs, unless that was done before the agent was killed.
func (b *bringUp) mountStorage(s *storage) error {
	target := filepath.Join(b.path, s.dir())
	mounted, err := isMountPoint(target)
	if err != nil {
		return err
	}
	if !mounted {
		if err := b.m.mountTmpfs(target, s.size); err != nil {
			return err
		}
	}
	if b.fsGroup() == nil {
		return nil // the root of a tmpfs is writable for all, as the kubelet leaves it
	}
	return b.setVolumeMode(s.dir())
}

// isUp says whether the directory was fully set up, and is still mounted where it is a tmpfs.
func (b *bringUp) isUp(s *storage) (bool, error) {
	info, err := b.root.Lstat(s.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.IsDir() {
		return false, fmt.Errorf("%s exists and is not a directory", filepath.Join(b.path, s.dir()))
	}
	if s.memory {
		path := filepath.Join(b.path, s.dir())
		if mounted, err := isMountPoint(path); err != nil || !mounted {
			return false, err
		}
		if tmpfs, err := isTmpfs(path); err != nil || !tmpfs {
			return false, errors.Join(err, fmt.Errorf("something that is no tmpfs is mounted at %s", path))
		}
	}
	ready, err := b.root.Lstat(s.ready())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && ready.Mode().IsRegular(), err
}

func (b *bringUp) setReady(s *storage) error {
	if err := b.root.MkdirAll(filepath.Dir(s.ready()), dirMode); err != nil {
		return err
	}
	file, err := b.root.OpenFile(s.ready(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	return file.Close()
}

// setVolumeMode gives the volume's root its mode and group, whatever the umask.
func (b *bringUp) setVolumeMode(dir string) error {
	mode := volumeMode
	if group := b.fsGroup(); group != nil {
		if err := b.root.Lchown(dir, -1, int(*group)); err != nil {
			return err
		}
		mode |= fsGroupDirBits
	}
	return b.root.Chmod(dir, mode)
}

func (b *bringUp) fsGroup() *int64 {
	if b.pod.Spec.SecurityContext == nil {
		return nil
	}
	return b.pod.Spec.SecurityContext.FSGroup
}

// memorySize returns the size of a tmpfs in bytes, 0 where nothing bounds it: the least of the volume's own limit (source may be nil), the pod's
// memory limit and what the node can give to pods.
func memorySize(pod *v1.Pod, source *v1.EmptyDirVolumeSource, allocatable v1.ResourceList) int64 {
	size := allocatable.Memory().Value()
	limits := []int64{podMemoryLimit(pod)}
	if source != nil && source.SizeLimit != nil {
		limits = append(limits, source.SizeLimit.Value())
	}
	for _, limit := range limits {
		if limit > 0 && (size == 0 || limit < size) {
			size = limit
		}
	}
	return size
}

// podMemoryLimit returns what the pod's cgroup may use, 0 without a limit: it has one when the pod says so, or when every container has one.
func podMemoryLimit(pod *v1.Pod) int64 {
	limited := true
	limits := resource.PodLimits(pod, resource.PodResourcesOptions{
		ContainerFn: func(list v1.ResourceList, _ resource.ContainerType) {
			limited = limited && !list.Memory().IsZero()
		},
	})
	if own := pod.Spec.Resources; own != nil && !own.Limits.Memory().IsZero() {
		limited = true
	}
	if !limited {
		return 0
	}
	return limits.Memory().Value()
}
