package volumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Config is what a [Manager] is told once.
type Config struct {
	// RootDir is the kubelet's root directory, an absolute path; pods are beneath RootDir/pods.
	RootDir string
	// NodeAllocatable is what the node can give to pods. Its memory is the upper bound of a tmpfs; without it a tmpfs has the kernel's
	// own bound, half of the memory.
	NodeAllocatable v1.ResourceList
}

// Objects are the ConfigMaps and Secrets that volumes read. The objects must not be changed afterwards by anybody.
type Objects interface {
	// ConfigMap returns the object, or false when there is none.
	ConfigMap(namespace, name string) (*v1.ConfigMap, bool)
	// Secret returns the object, or false when there is none.
	Secret(namespace, name string) (*v1.Secret, bool)
}

// Dynamic is what a pod's volumes may show that is neither in its spec nor in an object.
type Dynamic struct {
	// HostIPs are the node's addresses, the primary first.
	HostIPs []string
	// PodIPs are the pod's addresses, the primary first; empty before it has any.
	PodIPs []string
}

// Deps are what a [Manager] works with. Only Objects, FieldValue and ResourceValue are needed; the last two only by downward API files.
type Deps struct {
	// Mounter mounts and unmounts; nil means by system calls, which is much quicker than running mount(8).
	Mounter Mounter
	Objects Objects
	// FieldValue returns what a fieldRef selects.
	FieldValue func(pod *v1.Pod, ref *v1.ObjectFieldSelector, dynamic Dynamic) (string, error)
	// ResourceValue returns what a resourceFieldRef selects; ref names the container.
	ResourceValue func(pod *v1.Pod, ref *v1.ResourceFieldSelector) (string, error)
	// Now names the directories of new content; nil means time.Now.
	Now func() time.Time
	// Logger may be nil.
	Logger *slog.Logger
}

// Mount is a volume that is up.
type Mount struct {
	// HostPath is what containers mount.
	HostPath string
	// ReadOnly says that containers must mount it read-only, whatever their own mount says.
	ReadOnly bool
	// SELinuxRelabel says that the volume is the agent's own and gets the pod's label where SELinux is enabled.
	SELinuxRelabel bool
}

// Mounts are the volumes that are up, by their name in the pod.
type Mounts map[string]Mount

// Manager makes and removes the directories and volumes of pods. See the package's documentation.
type Manager struct {
	cfg     Config
	deps    Deps
	podsDir string
	// swappable is set once the kernel has refused a tmpfs that cannot be swapped out.
	swappable atomic.Bool
}

// New returns a Manager. It touches nothing on disk.
func New(cfg Config, deps Deps) *Manager {
	if deps.Mounter == nil {
		deps.Mounter = KernelMounter{}
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	podsDir := filepath.Join(cfg.RootDir, "pods")
	if abs, err := filepath.Abs(podsDir); err == nil {
		podsDir = abs
	}
	return &Manager{cfg: cfg, deps: deps, podsDir: podsDir}
}

// Ensure brings up every volume of the pod, or brings it up to date, and returns those that are up. It needs the directories that
// [Manager.EnsureDirs] makes.
//
// One broken volume does not stop the others: the result holds what is up even when there is an error, which joins a [VolumeError] for
// each that is not (take them apart with [Failures]). A volume that was up keeps its last content while a new one cannot be had, and
// is then both in the result and in the error. An error that is [ErrUnsupported] will not go away by itself; one that is [ErrNotFound]
// goes away when the ConfigMap or Secret comes, see [References].
func (m *Manager) Ensure(ctx context.Context, pod *v1.Pod, dynamic Dynamic) (Mounts, error) {
	root, err := m.openPod(pod.UID)
	if err != nil {
		return nil, fmt.Errorf("open directory of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	defer closeHandle(root)
	up := &bringUp{m: m, pod: pod, dynamic: dynamic, root: root, path: m.PodDir(pod.UID)}
	mounts := make(Mounts, len(pod.Spec.Volumes))
	var errs []error
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if err := ctx.Err(); err != nil {
			return mounts, errors.Join(append(errs, err)...)
		}
		mount, ok, err := up.volume(i, volume)
		if ok {
			mounts[volume.Name] = mount
		}
		if err != nil {
			errs = append(errs, &VolumeError{Volume: volume.Name, Err: err})
		}
	}
	return mounts, errors.Join(errs...)
}

// bringUp is one call of Ensure: a pod, and its directory held open.
type bringUp struct {
	m       *Manager
	pod     *v1.Pod
	dynamic Dynamic
	// root is the pod's directory, and path its name for mounts and results.
	root *os.Root
	path string
}

// volume brings up one volume, the i-th of the pod's spec. ok says that the volume can be used, which may be so despite an error.
func (b *bringUp) volume(i int, volume *v1.Volume) (mount Mount, ok bool, err error) {
	if err := checkName("volume", volume.Name); err != nil {
		return Mount{}, false, err
	}
	switch {
	case volume.HostPath != nil:
		err := checkHostPath(volume.HostPath)
		return Mount{HostPath: volume.HostPath.Path}, err == nil, err
	case volume.EmptyDir != nil:
		return b.emptyDir(i, volume)
	case volume.ConfigMap != nil, volume.Secret != nil, volume.DownwardAPI != nil, volume.Projected != nil:
		return b.files(i, volume)
	}
	return Mount{}, false, unsupported("spec.volumes[%d].%s: volumes of this kind are not supported", i, sourceField(&volume.VolumeSource))
}

// PodDir returns the directory of the pod, whether it exists or not.
func (m *Manager) PodDir(uid types.UID) string { return filepath.Join(m.podsDir, string(uid)) }
