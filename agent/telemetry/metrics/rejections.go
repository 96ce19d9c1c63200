package metrics

import "strings"

// Labels of rejections whose reasons are not told apart, as with a kubelet: names of resources are
// the cluster's, and would make series without end.
const (
	rejectedExtended = "OutOfExtendedResources"
	rejectedOther    = "Other"
)

// Rejected counts a pod that admission refused.
func (s *Set) Rejected(reason string) { s.pods.rejections.WithLabelValues(rejection(reason)).Inc() }

// rejection returns the label of a reason: the reasons that a kubelet counts by name, and berth's
// own PodSecurity.
func rejection(reason string) string {
	switch reason {
	case "AppArmor", "Evicted", "NodeShutdown", "OutOfcpu", "OutOfephemeral-storage", "OutOfmemory", "OutOfpods",
		"PodFeatureUnsupported", "PodOSNotSupported", "PodOSSelectorNodeLabelDoesNotMatch", "PodSecurity",
		"SupplementalGroupsPolicyNotSupported", "SysctlForbidden", "TopologyAffinityError",
		"UnexpectedAdmissionError":
		return reason
	}
	if strings.HasPrefix(reason, "OutOf") {
		return rejectedExtended
	}
	return rejectedOther
}
