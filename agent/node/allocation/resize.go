package allocation

import (
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/resize"
	"github.com/berthd/berth/cgroups"
	"github.com/berthd/berth/internal/pods"
)

// Unresizable returns why a running pod, which has what current asks for, cannot have what wanted
// asks for; nil if it can. The messages are the kubelet's.
func (m *Manager) Unresizable(wanted, current *v1.Pod) *resize.Pending {
	var policy string
	switch {
	case cgroups.QOSClass(wanted) != v1.PodQOSGuaranteed:
		return nil
	case m.cpus.Static() && differ(wanted, current, v1.ResourceCPU):
		policy = `CPU Manager policy "static"`
	case m.memory.Static() && differ(wanted, current, v1.ResourceMemory):
		policy = `Memory Manager policy "Static"`
	default:
		return nil
	}
	return &resize.Pending{
		Reason: v1.PodReasonInfeasible, Message: "Resize is infeasible for Guaranteed Pods alongside " + policy,
	}
}

// differ reports whether the containers of two states of a pod request different amounts of a
// resource.
func differ(a, b *v1.Pod, name v1.ResourceName) bool {
	has := map[string]v1.ResourceList{}
	for c := range pods.Starting(b) {
		has[c.Name] = c.Resources.Requests
	}
	for c := range pods.Starting(a) {
		amount, was := c.Resources.Requests[name], has[c.Name][name]
		if amount.Cmp(was) != 0 {
			return true
		}
	}
	return false
}
