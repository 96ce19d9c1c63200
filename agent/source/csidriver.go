package source

import (
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berthd/berth/agent/source/objects"
)

// These are the API version of a CSIDriver and the kind of its list.
const (
	storageVersion = "storage.k8s.io/v1"
	csiDriverList  = "CSIDriverList"
)

// decodeCSIDriver decodes a local CSIDriver from a manifest. It warns of fields that only a cluster
// acts on.
func decodeCSIDriver(v Result, e element) Item {
	var in storagev1.CSIDriver
	item := decodeLocal(v, e, &in, func() (objects.Object, field.ErrorList, error) {
		return &in, validateCSIDriver(&in), nil
	})
	if item.Result.Accepted && in.Spec.AttachRequired != nil && *in.Spec.AttachRequired {
		item.Result.Warnings = append(item.Result.Warnings,
			e.warning("spec.attachRequired", "has no effect: volumes are attached by a cluster's controllers only"))
	}
	if item.Result.Accepted && len(in.Spec.TokenRequests) > 0 {
		item.Result.Warnings = append(item.Result.Warnings,
			e.warning("spec.tokenRequests", "pods of manifests have no tokens: their volumes of this driver fail"))
	}
	return item
}

// validateCSIDriver checks the metadata and the fields with a fixed set of values.
func validateCSIDriver(driver *storagev1.CSIDriver) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&driver.ObjectMeta, false, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata"))
	spec := field.NewPath("spec")
	modes := []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}
	for i, mode := range driver.Spec.VolumeLifecycleModes {
		if !slices.Contains(modes, mode) {
			errs = append(errs, field.NotSupported(spec.Child("volumeLifecycleModes").Index(i), mode, modes))
		}
	}
	policies := []storagev1.FSGroupPolicy{
		storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy,
	}
	if policy := driver.Spec.FSGroupPolicy; policy != nil && !slices.Contains(policies, *policy) {
		errs = append(errs, field.NotSupported(spec.Child("fsGroupPolicy"), *policy, policies))
	}
	return errs
}
