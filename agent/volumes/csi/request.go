package csi

import (
	"fmt"
	"slices"
	"strconv"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// checkMode returns an error, in the kubelet's words, if the driver has no volumes of this kind.
func (v *Volume) checkMode() error {
	want := storagev1.VolumeLifecyclePersistent
	if v.Inline {
		want = storagev1.VolumeLifecycleEphemeral
	}
	has := []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	if v.object != nil && len(v.object.Spec.VolumeLifecycleModes) > 0 {
		has = v.object.Spec.VolumeLifecycleModes
	}
	switch {
	case slices.Contains(has, want):
		return nil
	case v.object == nil:
		return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", want, v.Driver)
	}
	return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", want, v.Driver, has)
}

// capability says how the volume must be mounted.
func (v *Volume) capability(can capabilities) *csiapi.VolumeCapability {
	mode := v1.ReadWriteOnce
	if len(v.Modes) > 0 {
		mode = v.Modes[0]
	}
	access := &csiapi.VolumeCapability_AccessMode{Mode: accessMode(mode, can[knowsWriters])}
	if v.Block {
		return &csiapi.VolumeCapability{
			AccessMode: access,
			AccessType: &csiapi.VolumeCapability_Block{Block: &csiapi.VolumeCapability_BlockVolume{}},
		}
	}
	mount := &csiapi.VolumeCapability_MountVolume{FsType: v.FSType, MountFlags: v.Options}
	if group := v.fsGroup(); group != nil && can[mountsWithGroup] && v.GroupWanted() {
		mount.VolumeMountGroup = strconv.FormatInt(*group, 10)
	}
	return &csiapi.VolumeCapability{AccessMode: access, AccessType: &csiapi.VolumeCapability_Mount{Mount: mount}}
}

// accessMode converts an access mode to the driver's. Only some drivers know how many pods of one
// node may write.
func accessMode(mode v1.PersistentVolumeAccessMode, knowsWriters bool) csiapi.VolumeCapability_AccessMode_Mode {
	switch {
	case mode == v1.ReadOnlyMany:
		return csiapi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case mode == v1.ReadWriteMany:
		return csiapi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case mode == v1.ReadWriteOncePod && knowsWriters:
		return csiapi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	case mode == v1.ReadWriteOnce && knowsWriters:
		return csiapi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	}
	return csiapi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
}

func (v *Volume) fsGroup() *int64 {
	if v.Pod.Spec.SecurityContext == nil {
		return nil
	}
	return v.Pod.Spec.SecurityContext.FSGroup
}

// GroupWanted reports whether the volume must be given to the pod's fsGroup, by the driver's
// fsGroupPolicy.
func (v *Volume) GroupWanted() bool {
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if v.object != nil && v.object.Spec.FSGroupPolicy != nil {
		policy = *v.object.Spec.FSGroupPolicy
	}
	switch {
	case v.Block || v.fsGroup() == nil || v.ReadOnly || policy == storagev1.NoneFSGroupPolicy:
		return false
	case policy == storagev1.FileFSGroupPolicy:
		return true
	}
	once := slices.ContainsFunc(v.Modes, func(m v1.PersistentVolumeAccessMode) bool {
		return m == v1.ReadWriteOnce || m == v1.ReadWriteOncePod
	})
	return v.FSType != "" && once
}
