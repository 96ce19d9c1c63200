package admit

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// nodeMatches refuses a pod if this node does not match the pod's nodeSelector or required node
// affinity. A term that cannot be parsed matches nothing.
func nodeMatches(in Input) *Rejection {
	affinity := in.Pod.Spec.Affinity
	if len(in.Pod.Spec.NodeSelector) == 0 && (affinity == nil || affinity.NodeAffinity == nil) {
		return nil
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: in.Node.Name, Labels: in.Node.Labels}}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(in.Pod).Match(node); ok && err == nil {
		return nil
	}
	return &Rejection{
		Reason:  "NodeAffinity",
		Message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
	}
}
