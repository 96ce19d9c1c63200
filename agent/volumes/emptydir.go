package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
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
	pluginLocal       = "kubernetes.io~local-volume"
	pluginNFS         = "kubernetes.io~nfs"
	pluginCSI         = "kubernetes.io~csi"
	// pluginClaim is berth's own name. A kubelet asks the API server which volume is behind a
	// claim.
	pluginClaim = "berth.dev~claim"
)

const (
	// volumeMode is the mode of a volume's root. The directory above it keeps others out.
	volumeMode fs.FileMode = 0o777
	// memoryMode is the mode of the root of a volume in memory. A kubelet leaves the root of a
	// tmpfs as the kernel makes it, sticky.
	memoryMode = volumeMode | fs.ModeSticky
	// fsGroupDirBits are added to directories of a pod with an fsGroup, so that new files there
	// belong to the group, too.
	fsGroupDirBits fs.FileMode = fs.ModeSetgid | 0o110
	// readyFile says that a volume's directory was fully set up.
	readyFile = "ready"
	// wrapped begins the name under which the ready file of a volume with files is kept.
	wrapped = "wrapped_"
)

// The file systems that volumes are made on.
const (
	onDisk      = ""
	onTmpfs     = "tmpfs"
	onHugePages = "hugetlbfs"
)

// storage is a directory to be made for a volume.
type storage struct {
	// plugin and volume make the directory's path.
	plugin, volume string
	// meta is the directory of the ready file.
	meta string
	// fs is the file system that is mounted on the directory: onDisk for none.
	fs string
	// size bounds a tmpfs, in bytes; 0 is the kernel's own bound.
	size int64
	// pageSize is the size of huge pages, in bytes.
	pageSize int64
}

func (s *storage) dir() string   { return "volumes/" + s.plugin + "/" + s.volume }
func (s *storage) ready() string { return "plugins/" + pluginEmptyDir + "/" + s.meta + "/" + readyFile }

// emptyDir brings up an emptyDir. Once it is up, it belongs to the containers: neither its mode nor
// its contents are touched again. A size limit bounds a tmpfs. On disk, eviction measures whether
// the limit is exceeded.
func (b *bringUp) emptyDir(i int, volume *v1.Volume) (Mount, bool, error) {
	s := storage{plugin: pluginEmptyDir, volume: volume.Name, meta: volume.Name}
	switch medium := volume.EmptyDir.Medium; {
	case medium == v1.StorageMediumDefault:
	case medium == v1.StorageMediumMemory:
		s.fs = onTmpfs
		s.size = memorySize(b.pod, volume.EmptyDir, b.m.cfg.NodeAllocatable)
	case strings.HasPrefix(string(medium), string(v1.StorageMediumHugePages)):
		s.fs = onHugePages
		var err error
		if s.pageSize, err = hugePageSize(b.pod, medium); err != nil {
			return Mount{}, false, err
		}
	default:
		return Mount{}, false, unsupported("spec.volumes[%d].emptyDir.medium: unknown storage medium %q", i, medium)
	}
	if err := b.storage(&s); err != nil {
		return Mount{}, false, err
	}
	return Mount{HostPath: filepath.Join(b.path, s.dir()), SELinuxRelabel: true}, true, nil
}

// storage makes the directory, unless it was made before.
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
	if err := b.setVolumeMode(s.dir(), volumeMode); err != nil {
		return err
	}
	if s.fs != onDisk {
		if err := b.mountStorage(s); err != nil {
			return err
		}
	}
	return b.setReady(s)
}

// mountStorage mounts the file system, unless that was done before the agent was killed.
func (b *bringUp) mountStorage(s *storage) error {
	target := filepath.Join(b.path, s.dir())
	mounted, err := isMountPoint(target)
	if err != nil {
		return err
	}
	switch {
	case mounted:
	case s.fs == onHugePages:
		err = b.m.mountHugePages(target, s.pageSize)
	default:
		err = b.m.mountTmpfs(target, s.size)
	}
	if err != nil {
		return err
	}
	if s.fs == onTmpfs {
		return b.setVolumeMode(s.dir(), memoryMode)
	}
	return b.setVolumeMode(s.dir(), volumeMode)
}

// isUp reports whether the directory was fully set up, and whether its file system, if it has one,
// is still mounted.
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
	if s.fs != onDisk {
		path := filepath.Join(b.path, s.dir())
		if mounted, err := isMountPoint(path); err != nil || !mounted {
			return false, err
		}
		if err := s.checkMount(path); err != nil {
			return false, err
		}
	}
	ready, err := b.root.Lstat(s.ready())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && ready.Mode().IsRegular(), err
}

// checkMount makes sure that the mount at path is of the volume's kind.
func (s *storage) checkMount(path string) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	switch {
	case s.fs == onTmpfs && stat.Type != unix.TMPFS_MAGIC, s.fs == onHugePages && stat.Type != unix.HUGETLBFS_MAGIC:
		return fmt.Errorf("something that is no %s is mounted at %s", s.fs, path)
	// the block size of a hugetlbfs is its pages' size
	case s.fs == onHugePages && stat.Bsize != s.pageSize:
		return fmt.Errorf("pages of %d bytes are mounted at %s, and not of %d", stat.Bsize, path, s.pageSize)
	}
	return nil
}

func (b *bringUp) setReady(s *storage) error {
	if err := b.root.MkdirAll(filepath.Dir(s.ready()), dirMode); err != nil {
		return err
	}
	return touch(b.root, s.ready())
}

// touch makes an empty file beneath root.
func touch(root *os.Root, name string) error {
	file, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	return file.Close()
}

// setVolumeMode sets the mode and group of the volume's root, whatever the umask. mode is the mode
// without an fsGroup.
func (b *bringUp) setVolumeMode(dir string, mode fs.FileMode) error {
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

// memorySize returns the size of a tmpfs in bytes, 0 if nothing bounds it. It is the least of the
// volume's own limit (source may be nil), the pod's memory limit and what the node can give to
// pods.
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

// podMemoryLimit returns what the pod's cgroup may use, 0 without a limit. There is a limit if the
// pod has one, or if every container has one.
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
