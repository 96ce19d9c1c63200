// Package volumekinds says which kinds of volumes this node makes, and why it refuses the others.
//
// Purpose: one answer for those who read manifests and for those who make volumes.
//
// Truth owned: the two lists of kinds. The functions are pure.
//
// Concurrency: none.
package volumekinds

import (
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Why volumes of some kinds are refused: texts that several kinds share.
const (
	whyCloud   = "Kubernetes moved this kind to a CSI driver: use a volume of that driver"
	whyRemoved = "Kubernetes removed this kind"
	whySAN     = "this node does not attach block storage over the network"
)

// refused says, by the API's name of the field of a volume source or a PersistentVolume's source,
// why volumes of this kind are refused. A kind is either here or in madeHere: tests find every kind
// by reflection, so that none is ever silently ignored.
func refused() map[string]string {
	return map[string]string{
		"awsElasticBlockStore": whyCloud,
		"azureDisk":            whyCloud,
		"azureFile":            whyCloud,
		"cephfs":               whyRemoved,
		"cinder":               whyCloud,
		"ephemeral": "a volume made from a claim template needs a cluster's provisioner, which this node " +
			"does without",
		"fc": whySAN,
		"flexVolume": "FlexVolume drivers are programs that run as root on the node; they are deprecated, " +
			"and not supported",
		"flocker":           whyRemoved,
		"gcePersistentDisk": whyCloud,
		"gitRepo": "git-repo volume plugin has been disabled: it lets a pod run commands as root on the node; " +
			"clone in an init container instead",
		"glusterfs":            whyRemoved,
		"iscsi":                whySAN,
		"photonPersistentDisk": whyRemoved,
		"portworxVolume":       whyCloud,
		"quobyte":              whyRemoved,
		"rbd":                  whyRemoved,
		"scaleIO":              whyRemoved,
		"storageos":            whyRemoved,
		"vsphereVolume":        whyCloud,
	}
}

// madeHere are the kinds of volumes that package volumes brings up; the runtime mounts image
// volumes.
func madeHere() []string {
	return []string{
		"configMap", "csi", "downwardAPI", "emptyDir", "hostPath", "image", "local", "nfs", "persistentVolumeClaim",
		"projected", "secret",
	}
}

// Refused says why a volume is refused whatever is on the node, and the field that is to blame
// (gitRepo, …); why is empty for a kind that is made here.
func Refused(source *v1.VolumeSource) (kind, why string) { return refusal(Of(source)) }

// RefusedVolume is [Refused] for a PersistentVolume.
func RefusedVolume(source *v1.PersistentVolumeSource) (kind, why string) {
	return refusal(Of(source))
}

func refusal(kinds []string) (kind, why string) {
	if len(kinds) == 0 {
		return "", "the volume has no source that this release knows"
	}
	for _, kind := range kinds {
		if slices.Contains(madeHere(), kind) {
			continue
		}
		if why := refused()[kind]; why != "" {
			return kind, why
		}
		return kind, "volumes of this kind are not supported"
	}
	return kinds[0], ""
}

// Of returns the API's names of the fields that are set in a source, a pointer to a struct of
// pointers.
func Of(source any) []string {
	value := reflect.ValueOf(source).Elem()
	var names []string
	for i := range value.NumField() {
		if !value.Field(i).IsNil() {
			names = append(names, name(value.Type().Field(i)))
		}
	}
	return names
}

// name returns the API's name of a field.
func name(field reflect.StructField) string {
	tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return tag
}
