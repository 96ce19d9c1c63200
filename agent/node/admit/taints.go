package admit

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

// taintsTolerated refuses a pod of an API server that does not tolerate a NoExecute taint of this
// node: the control plane would evict the pod at once. Other effects are for the scheduler alone.
func taintsTolerated(in Input) *Rejection {
	if !in.FromAPI {
		return nil
	}
	executes := func(t *v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute }
	taint, found := corev1.FindMatchingUntoleratedTaint(klog.Logger{}, in.Node.Taints, in.Pod.Spec.Tolerations,
		executes, in.Node.TaintComparison)
	if !found {
		return nil
	}
	return &Rejection{
		Reason:  "TaintToleration",
		Message: "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
		Detail:  "the pod does not tolerate the taint " + taint.ToString(),
	}
}
