package expand

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// notRequired is the annotation of a claim whose volume only the controllers have to expand.
const notRequired = "volume.kubernetes.io/node-expansion-not-required"

// todo is what this node has to do for a claim.
type todo struct {
	// size is the size that the driver has to reach.
	size resource.Quantity
	// mark says that the claim is first marked as in progress. update says that its capacity is
	// written afterwards.
	mark, update bool
	// lenient says that it is no failure if the driver cannot expand volumes.
	lenient bool
}

// decide says what this node has to do for a claim that is bound to a volume, if anything.
func decide(claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) (do todo, asked bool) {
	has := claim.Status.Capacity[v1.ResourceStorage]
	state := claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]
	// an older resizer does not report its progress
	if state == "" && claim.Status.AllocatedResources == nil {
		size := pv.Spec.Capacity[v1.ResourceStorage]
		return todo{size: size, update: has.Cmp(size) < 0, lenient: true}, true
	}
	size := claim.Status.AllocatedResources[v1.ResourceStorage]
	switch {
	case state == v1.PersistentVolumeClaimNodeResizePending, state == v1.PersistentVolumeClaimNodeResizeInProgress:
		return todo{size: size, mark: state != v1.PersistentVolumeClaimNodeResizeInProgress, update: true}, true
	case state == "" && has.Cmp(size) >= 0 && slices.Contains(claim.Spec.AccessModes, v1.ReadWriteMany):
		_, no := claim.Annotations[notRequired]
		return todo{size: size, lenient: true}, !no
	}
	return todo{}, false
}

// sizeOf returns the size of a volume, which may be greater than the size in its claim.
func sizeOf(pv *v1.PersistentVolume) resource.Quantity {
	if pv == nil {
		return resource.Quantity{}
	}
	return pv.Spec.Capacity[v1.ResourceStorage]
}
