package admit

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/fields"
	"github.com/berthd/berth/agent/pod/generate"
)

// reasonFeature is the reason for refusing a pod that needs something that the node does not have.
const reasonFeature = "PodFeatureUnsupported"

// maxListed is the most bytes of field names that one rejection lists.
const maxListed = 1024

// groupsPolicyKnown refuses a pod with supplementalGroupsPolicy Strict where the runtime cannot
// leave out the groups of the image (KEP-3619).
func groupsPolicyKnown(in Input) *Rejection {
	sc := in.Pod.Spec.SecurityContext
	if sc == nil || sc.SupplementalGroupsPolicy == nil ||
		*sc.SupplementalGroupsPolicy != v1.SupplementalGroupsPolicyStrict || !in.Node.NoStrictGroups {
		return nil
	}
	return &Rejection{
		Reason: "SupplementalGroupsPolicyNotSupported",
		Message: fmt.Sprintf("SupplementalGroupsPolicy=%s is not supported in this node",
			v1.SupplementalGroupsPolicyStrict),
	}
}

// appArmorEnforced refuses a pod with an AppArmor profile that the node cannot enforce, or whose
// name is missing (KEP-24).
func appArmorEnforced(in Input) *Rejection {
	if err := generate.CheckAppArmor(in.Pod, in.Node.AppArmor); err != nil {
		return &Rejection{Reason: "AppArmor", Message: fmt.Sprintf("Cannot enforce AppArmor: %v", err)}
	}
	return nil
}

// fieldsSupported refuses a pod that uses a field which the compatibility matrix says is refused.
func fieldsSupported(in Input) *Rejection {
	if found := fields.Refusals(in.Pod, in.FromAPI); len(found) > 0 {
		return &Rejection{Reason: reasonFeature, Message: fields.Join(found, maxListed)}
	}
	return nil
}
