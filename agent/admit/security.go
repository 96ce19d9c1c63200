package admit

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/fields"
	"github.com/berthd/berth/agent/generate"
)

// reasonFeature is why a pod is refused that asks for something that is not there.
const reasonFeature = "PodFeatureUnsupported"

// maxListed is how many bytes of fields one rejection names.
const maxListed = 1024

// groupsPolicyKnown refuses a pod whose image's groups must not count where the runtime would count them (row 115).
func groupsPolicyKnown(in Input) *Rejection {
	sc := in.Pod.Spec.SecurityContext
	if sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != v1.SupplementalGroupsPolicyStrict || !in.Node.NoStrictGroups {
		return nil
	}
	return &Rejection{Reason: "SupplementalGroupsPolicyNotSupported", Message: fmt.Sprintf("SupplementalGroupsPolicy=%s is not supported in this node", v1.SupplementalGroupsPolicyStrict)}
}

// appArmorEnforced refuses a pod with an AppArmor profile where nothing enforces it, or that does not say which (row 118).
func appArmorEnforced(in Input) *Rejection {
	if err := generate.CheckAppArmor(in.Pod, in.Node.AppArmor); err != nil {
		return &Rejection{Reason: "AppArmor", Message: fmt.Sprintf("Cannot enforce AppArmor: %v", err)}
	}
	return nil
}

// fieldsSupported refuses a pod that uses a field which the compatibility matrix says is refused.
func fieldsSupported(in Input) *Rejection {
	if found := fields.Refusals(in.Pod, in.Bound); len(found) > 0 {
		return &Rejection{Reason: reasonFeature, Message: fields.Join(found, maxListed)}
	}
	return nil
}
