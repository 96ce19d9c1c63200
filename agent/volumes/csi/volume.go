package csi

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Volume is one volume of one pod. Make it with [Inline] or [Persistent].
type Volume struct {
	Pod *v1.Pod
	// Name is the name of the PersistentVolume, or of the pod's own volume.
	Name string
	// Driver is the driver's name. Handle is the driver's name for the volume.
	Driver, Handle string
	// Inline says that the volume is the pod's own. It lives as long as the pod.
	Inline bool
	// Block says that containers get the volume as a block device.
	Block    bool
	ReadOnly bool
	FSType   string
	Options  []string
	Modes    []v1.PersistentVolumeAccessMode
	// Attributes are for the driver.
	Attributes map[string]string
	// StageSecret, PublishSecret and ExpandSecret name the Secrets with which the driver logs in;
	// nil for none.
	StageSecret, PublishSecret, ExpandSecret *v1.SecretReference

	// object is the driver's CSIDriver, nil if there is none. tokens are the tokens that the driver
	// asks for, as it gets them. Prepare sets both.
	object   *storagev1.CSIDriver
	tokens   string
	attached bool
}

// Inline returns a pod's own volume.
func Inline(pod *v1.Pod, name string, source *v1.CSIVolumeSource) *Volume {
	v := &Volume{
		Pod: pod, Name: name, Driver: source.Driver, Handle: ephemeralHandle(pod.UID, name), Inline: true,
		Attributes: source.VolumeAttributes, Modes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
	}
	if source.ReadOnly != nil {
		v.ReadOnly = *source.ReadOnly
	}
	if source.FSType != nil {
		v.FSType = *source.FSType
	}
	if ref := source.NodePublishSecretRef; ref != nil && ref.Name != "" {
		v.PublishSecret = &v1.SecretReference{Namespace: pod.Namespace, Name: ref.Name}
	}
	return v
}

// Persistent returns a pod's use of a PersistentVolume of kind csi. readOnly is what the pod says.
// options are the volume's mount options.
func Persistent(pod *v1.Pod, pv *v1.PersistentVolume, readOnly bool, options []string) *Volume {
	source := pv.Spec.CSI
	return &Volume{
		Pod:           pod,
		Name:          pv.Name,
		Driver:        source.Driver,
		Handle:        source.VolumeHandle,
		ReadOnly:      readOnly,
		FSType:        source.FSType,
		Options:       options,
		Modes:         pv.Spec.AccessModes,
		Attributes:    source.VolumeAttributes,
		StageSecret:   source.NodeStageSecretRef,
		PublishSecret: source.NodePublishSecretRef,
		ExpandSecret:  source.NodeExpandSecretRef,
		Block:         pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock,
	}
}

// UniqueName is the volume's name in a Node's status.
func (v *Volume) UniqueName() v1.UniqueVolumeName { return uniqueName(v.Driver, v.Handle) }

func uniqueName(driver, handle string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + handle)
}

// ephemeralHandle is the driver's name for a pod's own volume.
func ephemeralHandle(pod types.UID, name string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(pod)+name)))
}

// AttachmentName is the name of the VolumeAttachment for a driver's volume and a node.
func AttachmentName(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// republishPeriod is how often a volume is published again if its driver asks for that. The kubelet
// does so whenever it syncs a pod, which is a minute or more apart.
const republishPeriod = time.Minute

// Directories and files beneath the root directory and beneath a pod's own.
const (
	pluginDir  = "kubernetes.io~csi"
	dataFile   = "vol_data.json"
	mountName  = "mount"
	stagedName = "globalmount"
	readyFile  = "ready"
	// devicesName is the kubelet's name for directories of block devices.
	devicesName = "volumeDevices"
)

func (n *Node) podDir(uid types.UID) string { return filepath.Join(n.cfg.RootDir, "pods", string(uid)) }

func (n *Node) volumeDir(uid types.UID, name string) string {
	return filepath.Join(n.podDir(uid), "volumes", pluginDir, name)
}

// Path is what containers get: the directory where the volume is published, or a link to its
// device.
func (n *Node) Path(v *Volume) string {
	if v.Block {
		return n.devicePath(v.Pod.UID, v.Name)
	}
	return n.target(v.Pod.UID, key{v.Name, false})
}

// key identifies a volume of a pod: by a PersistentVolume's name, and by whether it is a block
// device.
type key struct {
	name  string
	block bool
}

func (v *Volume) key() key { return key{v.Name, v.Block} }

// target is where a driver publishes a volume.
func (n *Node) target(uid types.UID, k key) string {
	if k.block {
		return filepath.Join(n.blockDir(), "publish", k.name, string(uid))
	}
	return filepath.Join(n.volumeDir(uid, k.name), mountName)
}

// recordDir is the directory of the record of a pod's volume.
func (n *Node) recordDir(uid types.UID, k key) string {
	if k.block {
		return n.ownDir(uid, k)
	}
	return n.volumeDir(uid, k.name)
}

// ownDir is the directory of what only berth writes about a pod's volume. No volume has the name
// "volumeDevices".
func (n *Node) ownDir(uid types.UID, k key) string {
	if k.block {
		return filepath.Join(n.podDir(uid), "plugins", pluginDir, devicesName, k.name)
	}
	return filepath.Join(n.podDir(uid), "plugins", pluginDir, k.name)
}

func (n *Node) readyPath(uid types.UID, k key) string {
	return filepath.Join(n.ownDir(uid, k), readyFile)
}

// stageDir is the directory in which a volume is staged, beside the record of that.
func (n *Node) stageDir(driver, handle string) string {
	return filepath.Join(n.cfg.RootDir, "plugins/kubernetes.io/csi", driver,
		fmt.Sprintf("%x", sha256.Sum256([]byte(handle))))
}

// stageRecordDir is the directory of the record of a staged volume.
func (n *Node) stageRecordDir(r *record) string {
	if r.Block {
		return filepath.Join(n.blockDir(), r.Volume, "data")
	}
	return n.stageDir(r.Driver, r.Handle)
}

// stagedAt is where a driver stages a volume.
func (n *Node) stagedAt(r *record) string {
	if r.Block {
		return filepath.Join(n.blockDir(), "staging", r.Volume)
	}
	return filepath.Join(n.stageDir(r.Driver, r.Handle), stagedName)
}

// attributes are the volume's own attributes, and what the driver wants to know about its pod.
func (v *Volume) attributes() map[string]string {
	out := maps.Clone(v.Attributes)
	if out == nil {
		out = map[string]string{}
	}
	if o := v.object; o != nil && o.Spec.PodInfoOnMount != nil && *o.Spec.PodInfoOnMount {
		out["csi.storage.k8s.io/pod.name"] = v.Pod.Name
		out["csi.storage.k8s.io/pod.namespace"] = v.Pod.Namespace
		out["csi.storage.k8s.io/pod.uid"] = string(v.Pod.UID)
		out["csi.storage.k8s.io/serviceAccount.name"] = v.Pod.Spec.ServiceAccountName
		out["csi.storage.k8s.io/ephemeral"] = fmt.Sprint(v.Inline)
	}
	if v.tokens != "" && !v.tokensInSecrets() {
		out[tokensKey] = v.tokens
	}
	return out
}

// tokensKey is the key under which a driver gets tokens.
const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

func (v *Volume) tokensInSecrets() bool {
	return v.object != nil && v.object.Spec.ServiceAccountTokenInSecrets != nil &&
		*v.object.Spec.ServiceAccountTokenInSecrets
}

func (v *Volume) republishes() bool {
	return v.object != nil && v.object.Spec.RequiresRepublish != nil && *v.object.Spec.RequiresRepublish
}

// needsAttaching reports whether a controller must attach the volume before the node can use it.
func (v *Volume) needsAttaching() bool {
	return !v.Inline && (v.object == nil || v.object.Spec.AttachRequired == nil || *v.object.Spec.AttachRequired)
}
