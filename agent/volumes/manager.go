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

	"github.com/berthd/berth/agent/pod/tasks"
	"github.com/berthd/berth/agent/pod/volumekinds"
	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/agent/volumes/expand"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/internal/silent"
)

// Config are the settings of a [Manager].
type Config struct {
	// RootDir is the kubelet's root directory, an absolute path. Pods are beneath RootDir/pods.
	RootDir string
	// NodeAllocatable is what the node can give to pods. Its memory is the upper bound of a tmpfs.
	// Without it, a tmpfs has the kernel's own bound, which is half of the memory.
	NodeAllocatable v1.ResourceList
	// NodeName is the node's name.
	NodeName string
	// Templates says that somebody makes claims from the templates in pods. A cluster's controllers
	// do.
	Templates bool
}

// Claims finds the volumes behind claims; package claims does.
type Claims interface {
	// Resolve returns the PersistentVolume that a pod's claim is bound to, which must not be
	// changed. The error is for the pod's events. If it comes with a volume, it says why that
	// volume cannot be on this node.
	Resolve(pod *v1.Pod, claim string) (*v1.PersistentVolume, error)
}

// Objects are the ConfigMaps and Secrets that volumes read. Nobody may change the objects
// afterwards.
type Objects interface {
	// ConfigMap returns a pod's object, nil if there is none. The error says why the object cannot
	// be known; it is [ErrUnderWay] if the object will be known soon.
	ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error)
	// Secret is ConfigMap for Secrets.
	Secret(pod *v1.Pod, name string) (*v1.Secret, error)
}

// Tokens has the service account tokens of pods; package tokens does.
type Tokens interface {
	// Token returns the content of a projection's file. The error is [ErrUnderWay] if there will be
	// a token soon.
	Token(pod *v1.Pod, projection *v1.ServiceAccountTokenProjection) ([]byte, error)
}

// TrustBundles has the trust anchors of a cluster.
type TrustBundles interface {
	// TrustBundle returns the certificates that a projection names, as PEM. The error is
	// [ErrUnderWay] if they will be known soon.
	TrustBundle(pod *v1.Pod, projection *v1.ClusterTrustBundleProjection) ([]byte, error)
}

// Certificates has the certificates that a cluster's signers issue for pods.
type Certificates interface {
	// Certificate returns the key and the certificate chain, both as PEM, of the source with that
	// index of a pod's volume. The error is [ErrUnderWay] until the signer has answered.
	Certificate(pod *v1.Pod, volume string, source int) (key, chain []byte, err error)
}

// Dynamic is what is needed to bring up a pod's volumes, and is neither in the pod's spec nor in an
// object.
type Dynamic struct {
	// Slow runs what may last beside the caller's sync. nil means that [Manager.Ensure] waits for
	// it.
	Slow Slow
	// Brief runs what takes a moment unless the file system of path does not answer; then the error
	// is an [ErrUnderWay]. nil means that [Manager.Ensure] waits.
	Brief func(key, path string, do func(context.Context) error) error
	// HostIPs are the node's addresses, the primary address first.
	HostIPs []string
	// PodIPs are the pod's addresses, the primary address first. They are empty until the pod has
	// an address.
	PodIPs []string
}

// Deps are what a [Manager] works with. Only Objects, FieldValue and ResourceValue are needed. Only
// downward API files need the last two.
type Deps struct {
	// Mounter mounts and unmounts. nil means system calls, which are much quicker than mount(8).
	Mounter Mounter
	// Apart does a step of an unmount that a server may delay outside of this process, see [Apart].
	// nil does it in this process, which the kernel may then keep from ending.
	Apart   func(server, step, target string) error
	Objects Objects
	// Claims may be nil: then there are no claims.
	Claims Claims
	// Tokens may be nil: then there are no tokens.
	Tokens Tokens
	// TrustBundles may be nil: then there are no trust bundles.
	TrustBundles TrustBundles
	// Certificates may be nil: then there are no certificates for pods.
	Certificates Certificates
	// CSI is what volumes of CSI drivers need. The manager sets its IsMounted, Unmount, Bind and
	// Logger. Without Drivers there are no such volumes.
	CSI csi.Deps
	// Growth expands the volumes of claims that CSI drivers have. nil means that no volume grows.
	Growth *expand.Expander
	// Events takes events about pods, with an empty container. nil drops them.
	Events func(pod *v1.Pod, container, kind, reason, message string)
	// FieldValue returns what a fieldRef selects.
	FieldValue func(pod *v1.Pod, ref *v1.ObjectFieldSelector, dynamic Dynamic) (string, error)
	// ResourceValue returns what a resourceFieldRef selects. ref names the container.
	ResourceValue func(pod *v1.Pod, ref *v1.ResourceFieldSelector) (string, error)
	// Operation is called after each operation on a volume: by which plugin, which operation, how
	// long it took, and how it ended. nil measures nothing.
	Operation func(plugin, operation string, took time.Duration, err error)
	// Now gives the time in the names of directories of new content. nil means time.Now.
	Now func() time.Time
	// Logger may be nil.
	Logger *slog.Logger
}

// Mount is a volume that is up.
type Mount struct {
	// HostPath is what containers mount.
	HostPath string
	// Device says that HostPath is a block device, or a link to one. Containers get it as a device.
	Device bool
	// ReadOnly says that containers must mount the volume read-only, whatever their own mount says.
	ReadOnly bool
	// SELinuxRelabel says that the volume is the agent's own. It gets the pod's label if SELinux is
	// enabled.
	SELinuxRelabel bool
	// Group is a group that the pod's processes get because of this volume; 0 is none.
	Group int64
	// Again is when the volume has to be looked at again; zero means never.
	Again time.Time
	// Image is the image of an image volume, which the runtime mounts. HostPath is then empty. The
	// manager never sets it.
	Image *runtimeapi.ImageSpec
}

// Mounts are the volumes that are up, by their name in the pod.
type Mounts map[string]Mount

// Manager makes and removes the directories and volumes of pods. See the package's documentation.
type Manager struct {
	cfg     Config
	deps    Deps
	podsDir string
	// swappable is set once the kernel has refused a tmpfs with noswap.
	swappable atomic.Bool
	// turns let one caller at a time bring up a local PersistentVolume, by its name.
	turns tasks.Turns[string]
	csi   *csi.Node
	// helpers are the places of the programs that mount.
	helpers *silent.Places
	// measured measures operations.
	measured *operations
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
	m := &Manager{
		cfg: cfg, deps: deps, podsDir: podsDir, helpers: silent.NewPlaces(), measured: newOperations(deps.Operation),
	}
	m.csi = m.newCSI()
	return m
}

// Ensure brings up every volume that a container of the pod uses, or brings it up to date. It
// returns the volumes that are up. It needs the directories that [Manager.EnsureDirs] makes.
//
// One broken volume does not stop the others. The result has what is up even if there is an error.
// The error joins a [VolumeError] for each volume that is not up; [Failures] takes them apart. A
// volume that was up keeps its last content while new content is not available, and is then both in
// the result and in the error.
//
// An error that is [ErrUnsupported] does not go away by itself. One that is [ErrNotFound] goes away
// when the ConfigMap or Secret comes. One that is [ErrUnderWay] is no failure. Image volumes are
// left out, because the runtime mounts them.
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
			continue // the runtime mounts it, or nobody uses it
		}
		up.persistentVolume = nil
		m.measured.begin(pod.UID, volume.Name)
		mount, ok, err := up.volume(i, volume)
		if ok && err == nil && !mount.Device {
			err = up.share(volume.Name, mount.HostPath)
			ok = err == nil
		}
		m.measured.end(pod.UID, volume.Name, pluginName(&volume.VolumeSource, up.persistentVolume), mount.Device, err)
		if ok {
			mounts[volume.Name] = mount
		}
		if err != nil {
			errs = append(errs, &VolumeError{Volume: volume.Name, Err: err})
		}
	}
	return mounts, errors.Join(errs...)
}

// usedBy returns the names of the volumes that containers mount, have as devices, or read variables
// from.
func usedBy(spec *v1.PodSpec) map[string]bool {
	used := map[string]bool{}
	for c := range pods.Containers(spec) {
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
	// root is the pod's directory. path is its name for mounts and results.
	root *os.Root
	path string
	// persistentVolume is what is behind the claim of the volume that is being brought up; nil for
	// a volume without a claim.
	persistentVolume *v1.PersistentVolume
	// trusted is how many bytes of trust bundles the volumes have so far.
	trusted int
	// content is how many bytes all files of the volumes have so far.
	content int
	// configMaps has the keys of the ConfigMaps that the volumes have used so far.
	configMaps map[string]map[string][]byte
}

// volume brings up one volume, the i-th of the pod's spec. ok says that the volume can be used,
// which is possible despite an error.
func (b *bringUp) volume(i int, volume *v1.Volume) (mount Mount, ok bool, err error) {
	if err := checkName("volume", volume.Name); err != nil {
		return Mount{}, false, err
	}
	switch {
	case volume.HostPath != nil:
		err := b.hostPath(volume.HostPath)
		return Mount{HostPath: volume.HostPath.Path}, err == nil, err
	case volume.EmptyDir != nil:
		return b.emptyDir(i, volume)
	case volume.PersistentVolumeClaim != nil:
		return b.claim(volume.Name, volume.PersistentVolumeClaim)
	case volume.Ephemeral != nil && b.m.cfg.Templates:
		return b.claim(volume.Name,
			&v1.PersistentVolumeClaimVolumeSource{ClaimName: ephemeral.VolumeClaimName(b.pod, volume)})
	case volume.NFS != nil:
		return b.nfs(nfsMount{
			name:     volume.Name,
			server:   volume.NFS.Server,
			export:   volume.NFS.Path,
			readOnly: volume.NFS.ReadOnly,
		})
	case volume.CSI != nil:
		return b.csi(csi.Inline(b.pod, volume.Name, volume.CSI), nil)
	case volume.ConfigMap != nil, volume.Secret != nil, volume.DownwardAPI != nil, volume.Projected != nil:
		return b.files(i, volume)
	}
	kind, why := volumekinds.Refused(&volume.VolumeSource)
	return Mount{}, false, unsupported("%s: %s", strings.TrimSuffix(fmt.Sprintf("spec.volumes[%d].%s", i, kind), "."),
		why)
}

// event reports an event about a pod.
func (m *Manager) event(pod *v1.Pod, kind, reason, message string) {
	if m.deps.Events != nil {
		m.deps.Events(pod, "", kind, reason, message)
	}
}

// PodDir returns the directory of a pod beneath a root directory. The directory need not exist.
func PodDir(rootDir string, uid types.UID) string { return filepath.Join(rootDir, "pods", string(uid)) }

// PodDir returns the directory of the pod. The directory need not exist.
func (m *Manager) PodDir(uid types.UID) string { return filepath.Join(m.podsDir, string(uid)) }
