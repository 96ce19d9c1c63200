package volumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/tasks"
	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/agent/volumes/expand"
)

// Config is what a [Manager] is told once.
type Config struct {
	// RootDir is the kubelet's root directory, an absolute path; pods are beneath RootDir/pods.
	RootDir string
	// NodeAllocatable is what the node can give to pods. Its memory is the upper bound of a tmpfs; without it a tmpfs has the kernel's
	// own bound, half of the memory.
	NodeAllocatable v1.ResourceList
	// NodeName is the node's.
	NodeName string
	// Templates says that somebody makes claims from the templates in pods: a cluster's controllers do.
	Templates bool
}

// Claims finds the volumes behind claims; package claims does.
type Claims interface {
	// Resolve returns the PersistentVolume that a pod's claim is bound to, which must not be changed. The error is for the pod's events; with a volume it says
	// why that volume cannot be on this node.
	Resolve(pod *v1.Pod, claim string) (*v1.PersistentVolume, error)
}

// Objects are the ConfigMaps and Secrets that volumes read. The objects must not be changed afterwards by anybody.
type Objects interface {
	// ConfigMap returns a pod's object, nil when there is none. The error says why it cannot be known; it is [ErrUnderWay] when that will be soon.
	ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error)
	// Secret is ConfigMap for Secrets.
	Secret(pod *v1.Pod, name string) (*v1.Secret, error)
}

// Tokens has the service account tokens of pods; package tokens does.
type Tokens interface {
	// Token returns the content of a projection's file. The error is [ErrUnderWay] when there will be one soon.
	Token(pod *v1.Pod, projection *v1.ServiceAccountTokenProjection) ([]byte, error)
}

// Dynamic is what bringing up a pod's volumes takes that is neither in its spec nor in an object.
type Dynamic struct {
	// Slow runs what may last beside the caller's pass; nil means that [Manager.Ensure] waits for it.
	Slow Slow
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
	// Claims may be nil: then there are none.
	Claims Claims
	// Tokens may be nil: then there are none.
	Tokens Tokens
	// CSI is what volumes of CSI drivers need; its IsMounted, Unmount and Logger are the manager's to set. Without Drivers there are none.
	CSI csi.Deps
	// Growth has volumes of claims grow that are CSI drivers'; nil for nobody.
	Growth *expand.Expander
	// Events takes events about pods; nil drops them. container is empty.
	Events func(pod *v1.Pod, container, kind, reason, message string)
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
	// Device says that it is a block device, or a link to one, which containers get as a device.
	Device bool
	// ReadOnly says that containers must mount it read-only, whatever their own mount says.
	ReadOnly bool
	// SELinuxRelabel says that the volume is the agent's own and gets the pod's label where SELinux is enabled.
	SELinuxRelabel bool
	// Group is a group that the pod's processes get for this volume's sake; 0 is none.
	Group int64
	// Again is when the volume wants to be looked at again; zero for never.
	Again time.Time
	// Image is the image of an image volume, which the runtime mounts; HostPath is then empty. The manager never sets it.
	Image *runtimeapi.ImageSpec
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
	// turns say who may bring up a local PersistentVolume, by its name.
	turns tasks.Turns[string]
	csi   *csi.Node
}

// New returns a Manager. It changes nothing on disk.
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
	m := &Manager{cfg: cfg, deps: deps, podsDir: podsDir}
	m.csi = m.newCSI()
	return m
}

// Ensure brings up every volume that a container of the pod uses, or brings it up to date, and returns those that are up. It needs the directories that
// [Manager.EnsureDirs] makes.
//
// One broken volume does not stop the others: the result holds what is up even when there is an error, which joins a [VolumeError] for
// each that is not (take them apart with [Failures]). A volume that was up keeps its last content while a new one cannot be had, and
// is then both in the result and in the error. An error that is [ErrUnsupported] will not go away by itself; one that is [ErrNotFound]
// goes away when the ConfigMap or Secret comes, see [References]; one that is [ErrUnderWay] is no failure. Image volumes are left out: they are the
// runtime's to mount.
func (m *Manager) Ensure(ctx context.Context, pod *v1.Pod, dynamic Dynamic) (Mounts, error) {
	root, err := m.openPod(pod.UID)
	if err != nil {
		return nil, fmt.Errorf("open directory of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	defer closeHandle(root)
	up := &bringUp{ctx: ctx, m: m, pod: pod, dynamic: dynamic, root: root, path: m.PodDir(pod.UID)}
	mounts, used := make(Mounts, len(pod.Spec.Volumes)), usedBy(&pod.Spec)
	var errs []error
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if err := ctx.Err(); err != nil {
			return mounts, errors.Join(append(errs, err)...)
		}
		if volume.Image != nil || !used[volume.Name] {
			continue // the runtime's to mount, or nobody's
		}
		mount, ok, err := up.volume(i, volume)
		if ok && err == nil && !mount.Device {
			err = up.share(volume.Name, mount.HostPath)
			ok = err == nil
		}
		if ok {
			mounts[volume.Name] = mount
		}
		if err != nil {
			errs = append(errs, &VolumeError{Volume: volume.Name, Err: err})
		}
	}
	return mounts, errors.Join(errs...)
}

// usedBy returns the names of the volumes that containers mount, have as devices, or read variables from.
func usedBy(spec *v1.PodSpec) map[string]bool {
	used := map[string]bool{}
	for c := range containers(spec) {
		for i := range c.VolumeMounts {
			used[c.VolumeMounts[i].Name] = true
		}
		for i := range c.VolumeDevices {
			used[c.VolumeDevices[i].Name] = true
		}
		for i := range c.Env {
			if from := c.Env[i].ValueFrom; from != nil && from.FileKeyRef != nil {
				used[from.FileKeyRef.VolumeName] = true
			}
		}
	}
	return used
}

// bringUp is one call of Ensure: a pod, and its directory held open.
type bringUp struct {
	ctx     context.Context //nolint:containedctx // one call's
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
	case volume.PersistentVolumeClaim != nil:
		return b.claim(volume.Name, volume.PersistentVolumeClaim)
	case volume.Ephemeral != nil && b.m.cfg.Templates:
		return b.claim(volume.Name, &v1.PersistentVolumeClaimVolumeSource{ClaimName: ephemeral.VolumeClaimName(b.pod, volume)})
	case volume.NFS != nil:
		return b.nfs(nfsMount{name: volume.Name, server: volume.NFS.Server, export: volume.NFS.Path, readOnly: volume.NFS.ReadOnly})
	case volume.CSI != nil:
		return b.csi(csi.Inline(b.pod, volume.Name, volume.CSI), nil)
	case volume.ConfigMap != nil, volume.Secret != nil, volume.DownwardAPI != nil, volume.Projected != nil:
		return b.files(i, volume)
	}
	kind, why := Refused(&volume.VolumeSource)
	return Mount{}, false, unsupported("%s: %s", strings.TrimSuffix(fmt.Sprintf("spec.volumes[%d].%s", i, kind), "."), why)
}

// event tells of something about a pod.
func (m *Manager) event(pod *v1.Pod, kind, reason, message string) {
	if m.deps.Events != nil {
		m.deps.Events(pod, "", kind, reason, message)
	}
}

// PodDir returns the directory of the pod, whether it exists or not.
func (m *Manager) PodDir(uid types.UID) string { return filepath.Join(m.podsDir, string(uid)) }
