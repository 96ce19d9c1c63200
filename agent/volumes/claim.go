package volumes

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/berthd/berth/agent/pod/volumekinds"
	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/agent/volumes/expand"
	"github.com/berthd/berth/internal/atomicfile"
	"github.com/berthd/berth/internal/pods"
)

// Annotations of PersistentVolumes, as the API documents them.
const (
	// annotationGID is a group that every pod with the volume gets.
	annotationGID = "pv.beta.kubernetes.io/gid"
	// annotationMountOptions is what spec.mountOptions was before it was a field, separated by
	// commas.
	annotationMountOptions = "volume.beta.kubernetes.io/mount-options"
)

// claim brings up the PersistentVolume behind a claim. A pod keeps what it has up, like the content
// of a ConfigMap, also if the manifests of the claim or the volume are gone, bad or not read yet.
func (b *bringUp) claim(volume string, ref *v1.PersistentVolumeClaimVolumeSource) (Mount, bool, error) {
	had := b.recall(volume)
	pv, err := b.behind(volume, ref.ClaimName)
	if had != nil && (err != nil || pv.Name != had.Name) && b.isMounted(had) {
		mount, up, upErr := b.persistent(had, ref.ReadOnly, nil)
		return mount, up, errors.Join(err, upErr)
	}
	if err != nil {
		return Mount{}, false, err
	}
	use := &expand.Use{Pod: b.pod, Claim: ref.ClaimName, Volume: pv, Had: had, ReadOnly: ref.ReadOnly}
	mount, up, err := b.persistent(pv, ref.ReadOnly, use)
	if up && !equality.Semantic.DeepEqual(pv, had) && !b.grows(use) {
		err = b.remember(volume, pv)
	}
	return mount, up && err == nil, err
}

// claimRecord is the file in which a pod keeps which volume is behind one of its claims.
func claimRecord(volume string) string { return "plugins/" + pluginClaim + "/" + volume + ".json" }

// remember records which volume the pod has behind a claim.
func (b *bringUp) remember(volume string, pv *v1.PersistentVolume) error {
	data, err := json.Marshal(pv)
	if err != nil {
		return err
	}
	name := claimRecord(volume)
	if err := b.root.MkdirAll(filepath.Dir(name), dirMode); err != nil {
		return err
	}
	// A power loss may take the record: it also ends the mounts for which the record is kept.
	return atomicfile.WriteIn(b.root, name, data, 0o600, atomicfile.OverCrash)
}

// recall returns the volume that the pod has behind a claim, nil if it has none yet.
func (b *bringUp) recall(volume string) *v1.PersistentVolume {
	data, err := b.root.ReadFile(claimRecord(volume))
	if err != nil {
		return nil
	}
	pv := &v1.PersistentVolume{}
	if err := json.Unmarshal(data, pv); err != nil || checkName("PersistentVolume", pv.Name) != nil {
		return nil
	}
	return pv
}

// Claimed returns the pod's names of those of its volumes that are claims, by the names of their
// PersistentVolumes.
func (m *Manager) Claimed(pod *v1.Pod) map[string]string {
	out := map[string]string{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.PersistentVolumeClaim == nil && v.Ephemeral == nil {
			continue
		}
		root, err := m.openPod(pod.UID)
		if err != nil {
			return out
		}
		if pv := (&bringUp{root: root}).recall(v.Name); pv != nil {
			out[pv.Name] = v.Name
		}
		closeHandle(root)
	}
	return out
}

// isMounted reports whether the pod has the volume up, without bringing it up.
func (b *bringUp) isMounted(pv *v1.PersistentVolume) bool {
	up := true // a hostPath always is
	var err error
	switch {
	case pv.Spec.Local != nil && isBlock(pv):
		up = csi.IsBlockDevice(filepath.Join(b.path, (&localVolume{name: pv.Name}).link())) == nil
	case pv.Spec.Local != nil:
		up, err = (&localVolume{name: pv.Name}).isUp(b)
	case pv.Spec.NFS != nil:
		up, err = inMountTable(filepath.Join(b.path, (&nfsMount{name: pv.Name}).dir()))
	case pv.Spec.CSI != nil:
		up, _, err = b.m.csi.IsUp(csi.Persistent(b.pod, pv, false, nil))
	}
	return err == nil && up
}

// behind returns the volume that a claim is bound to, if containers can use it as they ask for. The
// errors are the kubelet's.
func (b *bringUp) behind(volume, claim string) (*v1.PersistentVolume, error) {
	if b.m.deps.Claims == nil {
		return nil, b.unprocessed(claim, fmt.Errorf("persistentvolumeclaim %q not found", claim))
	}
	pv, err := b.m.deps.Claims.Resolve(b.pod, claim)
	switch {
	case err != nil && pv != nil:
		return nil, of(pv, &csi.Failed{Operation: kindOf(pv) + ".NodeAffinity check", Err: err})
	case err != nil:
		return nil, b.unprocessed(claim, err)
	}
	mode := v1.PersistentVolumeFilesystem
	if pv.Spec.VolumeMode != nil {
		mode = *pv.Spec.VolumeMode
	}
	for container := range pods.Containers(&b.pod.Spec) {
		if mode != v1.PersistentVolumeFilesystem &&
			slices.ContainsFunc(container.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume }) {
			return nil, &classified{
				text:  fmt.Sprintf("volume %s has volumeMode %s, but is specified in volumeMounts", volume, mode),
				class: ErrUnprocessed,
			}
		}
		if mode != v1.PersistentVolumeBlock &&
			slices.ContainsFunc(container.VolumeDevices, func(d v1.VolumeDevice) bool { return d.Name == volume }) {
			return nil, &classified{
				text:  fmt.Sprintf("volume %s has volumeMode %s, but is specified in volumeDevices", volume, mode),
				class: ErrUnprocessed,
			}
		}
	}
	return pv, nil
}

// unprocessed makes the error of a claim whose volume is not known. [ErrUnderWay] stays as it is.
func (b *bringUp) unprocessed(claim string, err error) error {
	if errors.Is(err, ErrUnderWay) {
		return err
	}
	return &classified{
		text: fmt.Sprintf("error processing PVC %s/%s: %v", b.pod.Namespace, claim, err), class: ErrUnprocessed,
	}
}

// kindOf returns the first part of the names of the kubelet's operations that bring up a volume.
func kindOf(pv *v1.PersistentVolume) string {
	if isBlock(pv) {
		return "MapVolume"
	}
	return "MountVolume"
}

// isBlock reports whether containers get a volume as a block device.
func isBlock(pv *v1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock
}

// persistent brings up a PersistentVolume. As with a kubelet, its directory has the volume's own
// name: a pod that mounts one claim twice mounts one directory. use is nil if the volume must not
// grow.
func (b *bringUp) persistent(pv *v1.PersistentVolume, readOnly bool, use *expand.Use) (Mount, bool, error) {
	b.persistentVolume = pv
	mount, up, err := b.source(pv, readOnly, use)
	err = of(pv, err)
	if group, err := strconv.ParseInt(pv.Annotations[annotationGID], 10, 32); err == nil && group > 0 {
		mount.Group = group
	}
	return mount, up, err
}

func (b *bringUp) source(pv *v1.PersistentVolume, readOnly bool, use *expand.Use) (Mount, bool, error) {
	if kind, why := volumekinds.RefusedVolume(&pv.Spec.PersistentVolumeSource); why != "" {
		return Mount{}, false, unsupported("PersistentVolume %q: spec.%s: %s", pv.Name, kind, why)
	}
	if err := checkName("PersistentVolume", pv.Name); err != nil {
		return Mount{}, false, err
	}
	switch source := &pv.Spec.PersistentVolumeSource; {
	case isBlock(pv) && source.Local == nil && source.CSI == nil:
		return Mount{}, false, &csi.Failed{Operation: "MapVolume.FindMapperPluginBySpec", Err: unsupported(
			"failed to find BlockVolumeMapper plugin: PersistentVolume %q has volumeMode Block, and is of kind %s",
			pv.Name, volumekinds.Of(source)[0])}
	case isBlock(pv) && source.Local != nil:
		return b.localDevice(&localVolume{name: pv.Name, path: source.Local.Path, readOnly: readOnly})
	case source.HostPath != nil:
		err := b.hostPath(source.HostPath)
		return Mount{HostPath: source.HostPath.Path, ReadOnly: readOnly}, err == nil, err
	case source.NFS != nil:
		return b.nfs(nfsMount{
			name:     pv.Name,
			server:   source.NFS.Server,
			export:   source.NFS.Path,
			readOnly: readOnly,
			options:  mountOptions(pv),
		})
	case source.CSI != nil:
		return b.csi(csi.Persistent(b.pod, pv, readOnly, mountOptions(pv)), use)
	default:
		return b.local(&localVolume{
			name:     pv.Name,
			path:     source.Local.Path,
			fsType:   value(source.Local.FSType),
			readOnly: readOnly,
			options:  mountOptions(pv),
		})
	}
}

// mountOptions returns the options with which a PersistentVolume is mounted.
func mountOptions(pv *v1.PersistentVolume) []string {
	options := slices.Clone(pv.Spec.MountOptions)
	for option := range strings.SplitSeq(pv.Annotations[annotationMountOptions], ",") {
		if option = strings.TrimSpace(option); option != "" && !slices.Contains(options, option) {
			options = append(options, option)
		}
	}
	return options
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
