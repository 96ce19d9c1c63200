package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
)

// files brings up a volume of files, or brings its content up to date. A volume that is up stays
// usable if new content is not available.
func (b *bringUp) files(i int, volume *v1.Volume) (Mount, bool, error) {
	s := storage{volume: volume.Name, meta: wrapped + volume.Name}
	switch {
	case volume.ConfigMap != nil:
		s.plugin = pluginConfigMap
	case volume.Secret != nil:
		s.plugin, s.fs = pluginSecret, onTmpfs
	case volume.DownwardAPI != nil:
		s.plugin, s.fs = pluginDownwardAPI, onTmpfs
	default:
		s.plugin, s.fs = pluginProjected, onTmpfs
	}
	mount := Mount{HostPath: filepath.Join(b.path, s.dir()), ReadOnly: true, SELinuxRelabel: true}
	files, err := b.collect(i, &volume.VolumeSource)
	if err == nil {
		err = files.validate()
	}
	if err != nil {
		return mount, b.hasContent(&s), err
	}
	if s.fs == onTmpfs {
		s.size = memorySize(b.pod, nil, b.m.cfg.NodeAllocatable)
	}
	if err := b.storage(&s); err != nil {
		return mount, false, err
	}
	if err := b.write(&s, files); err != nil {
		return mount, b.hasContent(&s), err
	}
	return mount, true, nil
}

// write makes the volume hold the files.
func (b *bringUp) write(s *storage, files payload) error {
	root, err := b.root.OpenRoot(s.dir())
	if err != nil {
		return err
	}
	defer closeHandle(root)
	inside, err := b.nested(s.volume, files, func(dir string) error { return root.MkdirAll(dir, contentDirMode) })
	if err != nil {
		return err
	}
	w := &writer{root: root, group: b.fsGroup(), now: b.m.deps.Now}
	changed, err := w.write(files, inside)
	if err != nil {
		return fmt.Errorf("write files: %w", err)
	}
	if changed {
		b.m.deps.Logger.Debug("wrote volume", "pod", pods.FullName(b.pod), "volume", s.volume, "files", len(files))
	}
	return nil
}

// hasContent reports whether the volume was written before. Then containers may go on using it.
func (b *bringUp) hasContent(s *storage) bool {
	up, err := b.isUp(s)
	if err != nil || !up {
		return false
	}
	_, err = b.root.Stat(s.dir() + "/" + dataLink)
	return err == nil
}

// nested makes the mount points of other volumes inside this one. No runtime can create them, since
// containers mount this volume read-only. Mount points in a directory of files have to be written
// with the files, and are returned. nested calls mkdir for all others. If a file is there, nothing
// is needed: something can be mounted on the file.
func (b *bringUp) nested(volume string, files payload, mkdir func(dir string) error) (inside []string, err error) {
	tops := files.tops()
	for _, dir := range nestedMountPoints(&b.pod.Spec, volume) {
		if err := validatePath(dir); err != nil {
			return nil, fmt.Errorf("mount point inside the volume: %w", err)
		}
		top, _, _ := strings.Cut(dir, "/")
		switch {
		case files.fileOnTheWay(dir):
		case slices.Contains(tops, top):
			inside = append(inside, dir)
		default:
			if err := mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, fmt.Errorf("make mount point inside the volume: %w", err)
			}
		}
	}
	return inside, nil
}

// fileOnTheWay reports whether dir, or a directory above it, is a file of the payload.
func (p payload) fileOnTheWay(dir string) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, ok := p[dir]; ok {
			return true
		}
	}
	return false
}

// tops returns the first parts of all paths, sorted.
func (p payload) tops() []string {
	var tops []string
	for name := range p {
		top, _, _ := strings.Cut(name, "/")
		tops = append(tops, top)
	}
	slices.Sort(tops)
	return slices.Compact(tops)
}

// nestedMountPoints returns where containers mount other volumes inside the volume: sorted paths
// relative to the volume, only the outermost. A pod can have thousands of mounts.
func nestedMountPoints(spec *v1.PodSpec, volume string) []string {
	found := map[string]bool{}
	for container := range pods.Containers(spec) {
		volumes := map[string]bool{}
		for i := range container.VolumeMounts {
			mount := &container.VolumeMounts[i]
			if mount.Name == volume && mount.SubPath == "" && mount.SubPathExpr == "" {
				volumes[path.Clean("/"+mount.MountPath)] = true
			}
		}
		if len(volumes) == 0 {
			continue
		}
		for i := range container.VolumeMounts {
			inner := path.Clean("/" + container.VolumeMounts[i].MountPath)
			if len(inner) > maxPathLength {
				continue // which the runtime refuses
			}
			for above := range parents(inner) {
				if volumes[above] {
					found[strings.TrimPrefix(strings.TrimPrefix(inner, above), "/")] = true
				}
			}
		}
	}
	return outermost(found)
}

// parents returns the directories above a clean path, the nearest first, and the root directory.
func parents(p string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := strings.LastIndexByte(p, '/'); i > 0; i = strings.LastIndexByte(p[:i], '/') {
			if !yield(p[:i]) {
				return
			}
		}
		if path.IsAbs(p) && p != "/" {
			yield("/")
		}
	}
}

// outermost returns the paths that lie beneath no other of them, sorted.
func outermost(paths map[string]bool) []string {
	var out []string
	for p := range paths {
		if !liesIn(p, paths) {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

// liesIn reports whether a clean path lies beneath one of others.
func liesIn(p string, others map[string]bool) bool {
	for above := range parents(p) {
		if others[above] {
			return true
		}
	}
	return false
}
