package admit

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// nodeMatches refuses a pod if this node does not match the pod's nodeSelector or required node
// affinity. A term that cannot be parsed matches nothing.
func nodeMatches(in Input) *Rejection {
	if Matches(in.Pod, in.Node) {
		return nil
	}
	return &Rejection{
		Reason:  "NodeAffinity",
		Message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
	}
}

// Matches reports whether a node matches a pod's nodeSelector and required node affinity.
func Matches(pod *v1.Pod, node Node) bool {
	affinity := pod.Spec.Affinity
	if len(pod.Spec.NodeSelector) == 0 && (affinity == nil || affinity.NodeAffinity == nil) {
		return true
	}
	object := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels}}
	ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(object)
	return ok && err == nil
}
