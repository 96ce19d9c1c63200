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
	// Name is the PersistentVolume's, or that of the pod's own volume.
	Name string
	// Driver is the driver's name, Handle what it calls the volume.
	Driver, Handle string
	// Inline says that the volume is the pod's own and lives with it.
	Inline   bool
	ReadOnly bool
	FSType   string
	Options  []string
	Modes    []v1.PersistentVolumeAccessMode
	// Attributes are for the driver.
	Attributes map[string]string
	// StageSecret and PublishSecret name what the driver logs in with; nil for nothing.
	StageSecret, PublishSecret *v1.SecretReference

	// object is the driver's CSIDriver; nil where there is none. tokens are those that it asks for, as the driver gets them. Prepare sets both.
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

// Persistent returns a pod's use of a PersistentVolume of kind csi. readOnly is what the pod says; options are the volume's mount options.
func Persistent(pod *v1.Pod, pv *v1.PersistentVolume, readOnly bool, options []string) *Volume {
	source := pv.Spec.CSI
	return &Volume{
		Pod: pod, Name: pv.Name, Driver: source.Driver, Handle: source.VolumeHandle, ReadOnly: readOnly, FSType: source.FSType, Options: options,
		Modes: pv.Spec.AccessModes, Attributes: source.VolumeAttributes, StageSecret: source.NodeStageSecretRef, PublishSecret: source.NodePublishSecretRef,
	}
}

// UniqueName is how a Node's status names the volume.
func (v *Volume) UniqueName() v1.UniqueVolumeName { return uniqueName(v.Driver, v.Handle) }

func uniqueName(driver, handle string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + handle)
}

// ephemeralHandle is what a driver calls a pod's own volume.
func ephemeralHandle(pod types.UID, name string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(pod)+name)))
}

// AttachmentName is the name of the VolumeAttachment of a driver's volume and a node.
func AttachmentName(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// republishPeriod is how often a volume is published again whose driver asks for that; the kubelet does so whenever it looks at a pod, a minute and more apart.
const republishPeriod = time.Minute

// Directories and files beneath the root directory and beneath a pod's own.
const (
	pluginDir  = "kubernetes.io~csi"
	dataFile   = "vol_data.json"
	mountName  = "mount"
	stagedName = "globalmount"
	readyFile  = "ready"
)

func (n *Node) podDir(uid types.UID) string { return filepath.Join(n.cfg.RootDir, "pods", string(uid)) }

func (n *Node) volumeDir(uid types.UID, name string) string {
	return filepath.Join(n.podDir(uid), "volumes", pluginDir, name)
}

// Target is where the volume is published.
func (n *Node) Target(v *Volume) string {
	return filepath.Join(n.volumeDir(v.Pod.UID, v.Name), mountName)
}

func (n *Node) readyPath(v *Volume) string {
	return filepath.Join(n.podDir(v.Pod.UID), "plugins", pluginDir, v.Name, readyFile)
}

// stageDir holds where a volume is staged, and the record of that.
func (n *Node) stageDir(driver, handle string) string {
	return filepath.Join(n.cfg.RootDir, "plugins/kubernetes.io/csi", driver, fmt.Sprintf("%x", sha256.Sum256([]byte(handle))))
}

// attributes are the volume's own and what else the driver wants to know of its pod.
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
	return v.object != nil && v.object.Spec.ServiceAccountTokenInSecrets != nil && *v.object.Spec.ServiceAccountTokenInSecrets
}

func (v *Volume) republishes() bool {
	return v.object != nil && v.object.Spec.RequiresRepublish != nil && *v.object.Spec.RequiresRepublish
}

// needsAttaching says whether a controller must attach the volume before the node can use it.
func (v *Volume) needsAttaching() bool {
	return !v.Inline && (v.object == nil || v.object.Spec.AttachRequired == nil || *v.object.Spec.AttachRequired)
}
