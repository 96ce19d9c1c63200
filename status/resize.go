package status

import (
	v1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"
)

// Resize is a requested resize of the pod that is not done. Input.Pod has the allocated resources.
type Resize struct {
	// Pending says why the pod may not have the requested resources, with the reason Deferred or
	// Infeasible. It is empty if the pod may have them.
	Pending Reason
	// InProgress says that the containers do not have all allocated resources yet. Error is the
	// reason, if there is one.
	InProgress bool
	Error      string
	// Containers has the resources that each running attempt was last given, by the runtime's id. A
	// container without limits of its own has the pod's limits.
	Containers map[string]v1.ResourceRequirements
	// Pod is the pod with the resources that it and its containers have now.
	Pod *v1.Pod
}

// resizeConditions are the conditions of a resize that is not done.
func resizeConditions(in *Input) []v1.PodCondition {
	r := in.Resize
	if r == nil {
		return nil
	}
	var out []v1.PodCondition
	if r.Pending.Reason != "" {
		out = append(out, v1.PodCondition{
			Type:    v1.PodResizePending,
			Status:  v1.ConditionTrue,
			Reason:  r.Pending.Reason,
			Message: r.Pending.Message,
		})
	}
	if r.InProgress {
		c := v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue}
		if r.Error != "" {
			c.Reason, c.Message = v1.PodReasonError, r.Error
		}
		out = append(out, c)
	}
	for i := range out {
		out[i].ObservedGeneration = in.Pod.Generation
	}
	return out
}

// given replaces the allocated cpu and memory of a container, if its running attempt has others so
// far.
func (r *Resize) given(id string, allocated *v1.ResourceRequirements) {
	if r == nil {
		return
	}
	have, known := r.Containers[id]
	if !known {
		return
	}
	replace(allocated.Requests, have.Requests)
	replace(allocated.Limits, have.Limits)
}

// replace overwrites the amounts that are in both lists.
func replace(list, with v1.ResourceList) {
	for name := range list {
		if q, ok := with[name]; ok {
			list[name] = q
		}
	}
}

// actualTotal returns the pod's requests and limits that are in effect.
func (r *Resize) actualTotal(allocated *v1.ResourceRequirements) *v1.ResourceRequirements {
	if r == nil || r.Pod == nil {
		return allocated
	}
	out := allocated.DeepCopy()
	out.Requests = podresource.PodRequests(r.Pod, podresource.PodResourcesOptions{})
	out.Limits = podresource.PodLimits(r.Pod, podresource.PodResourcesOptions{})
	return out
}
