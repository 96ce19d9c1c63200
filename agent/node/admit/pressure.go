package admit

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/berthd/berth/cgroups"
	"github.com/berthd/berth/internal/pods"
)

// enoughLeft refuses pods while the node is under pressure, with the words of the kubelet's
// eviction manager. Critical pods run all the same, and so do all static pods. If only memory is
// short, only BestEffort pods are refused that do not tolerate the taint of a node in that state.
func enoughLeft(in Input) *Rejection {
	lacks := in.Node.Pressures
	if len(lacks) == 0 || pods.IsCritical(in.Pod) {
		return nil
	}
	if len(lacks) == 1 && lacks[0] == v1.NodeMemoryPressure &&
		(cgroups.QOSClass(in.Pod) != v1.PodQOSBestEffort || toleratesMemoryPressure(in.Pod)) {
		return nil
	}
	return &Rejection{Reason: "Evicted", Message: fmt.Sprintf("The node had condition: %v. ", lacks)}
}

func toleratesMemoryPressure(pod *v1.Pod) bool {
	taint := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
	for i := range pod.Spec.Tolerations {
		if pod.Spec.Tolerations[i].ToleratesTaint(klog.Logger{}, &taint, false) {
			return true
		}
	}
	return false
}
