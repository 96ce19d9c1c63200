package status

import (
	"net/netip"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"

	"github.com/berthd/berth/internal/pods"
)

// Derive returns the pod's status. It is pure, and it is idempotent: for the same facts, and its
// own result as Previous, it returns an equal status.
func Derive(in Input) v1.PodStatus {
	if in.Rejected != nil {
		return finish(&in, rejected(&in))
	}
	seen := group(in.Containers)
	s := &v1.PodStatus{
		QOSClass:                   qos.GetPodQOS(in.Pod),
		InitContainerStatuses:      containerStatuses(&in, seen, initContainer),
		ContainerStatuses:          containerStatuses(&in, seen, regularContainer),
		EphemeralContainerStatuses: containerStatuses(&in, seen, ephemeralContainer),
	}
	s.AllocatedResources, s.Resources = podResources(in.Pod)
	s.Resources = in.Resize.actualTotal(s.Resources)
	s.PodIPs = podIPs(&in)
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
	s.HostIPs = hostIPs(&in)
	if len(s.HostIPs) > 0 {
		s.HostIP = s.HostIPs[0].IP
	}
	settlePhase(&in, s, seen)
	s.Conditions = conditions(&in, s)
	holdBack(&in, s, seen)
	return finish(&in, s)
}

// rejected is the status of a pod that admission refused. It never had containers.
func rejected(in *Input) *v1.PodStatus {
	return &v1.PodStatus{
		QOSClass:   qos.GetPodQOS(in.Pod),
		Phase:      v1.PodFailed,
		Reason:     in.Rejected.Reason,
		Message:    "Pod was rejected: " + in.Rejected.Message,
		Conditions: unmanagedConditions(in),
	}
}

// settlePhase sets phase, reason and message. They follow from the containers, unless the phase was
// already final or the pod must fail.
func settlePhase(in *Input, s *v1.PodStatus, seen attempts) {
	previous, api := in.previous(), &in.Pod.Status
	s.Phase = podPhase(in, s, seen.initializedIn(in), in.Terminated && !pods.Static(in.Pod))
	if in.Terminated {
		if hasInitialized(in.Pod, s) {
			endAll(s.ContainerStatuses)
		}
		endAll(s.InitContainerStatuses[:startedPrefix(s.InitContainerStatuses)])
		if !pods.Static(in.Pod) && !pods.Terminal(s.Phase) {
			s.Phase = v1.PodFailed
		}
	}
	switch {
	case pods.Terminal(api.Phase):
		s.Phase = api.Phase
	case pods.Terminal(previous.Phase):
		s.Phase = previous.Phase
	}
	final := pods.Terminal(api.Phase) || pods.Terminal(previous.Phase)
	if in.Failed != nil && !final {
		if in.Failed.Yields && !pods.Static(in.Pod) && podPhase(in, s, seen.initializedIn(in), true) == v1.PodSucceeded {
			s.Phase = v1.PodSucceeded
			return
		}
		s.Phase, s.Reason, s.Message = v1.PodFailed, in.Failed.Reason, in.Failed.Message
		return
	}
	if s.Phase == previous.Phase {
		s.Reason, s.Message = previous.Reason, previous.Message
		if s.Reason == "" && s.Phase == api.Phase {
			s.Reason = api.Reason
		}
		if s.Message == "" && s.Phase == api.Phase {
			s.Message = api.Message
		}
	}
}

// holdBack keeps a phase from becoming final while a container still runs, or the pod has resource
// claims: others may use the pod's resources again once they see a final phase.
func holdBack(in *Input, s *v1.PodStatus, seen attempts) {
	previous := in.previous()
	if !pods.Terminal(s.Phase) || pods.Terminal(previous.Phase) || pods.Terminal(in.Pod.Status.Phase) ||
		in.Terminated ||
		!seen.anyRunning() && !in.Allocated.Claims {
		return
	}
	s.Phase, s.Reason, s.Message = previous.Phase, previous.Reason, previous.Message
	if s.Phase == "" {
		s.Phase = v1.PodRunning
	}
	kept := s.Conditions[:0]
	for _, c := range s.Conditions {
		if c.Type != v1.DisruptionTarget || condition(previous.Conditions, c.Type) != nil {
			kept = append(kept, c)
		}
	}
	s.Conditions = kept
}

// endAll marks containers as ended if their end was not observed.
func endAll(statuses []v1.ContainerStatus) {
	for i := range statuses {
		if statuses[i].State.Terminated == nil {
			statuses[i].State = v1.ContainerState{Terminated: unknownEnd(messageLostAtEnd)}
			statuses[i].Ready = false
			started := false
			statuses[i].Started = &started
		}
	}
}

// hasInitialized reports whether regular containers could have started, so that a missing end of
// theirs is a failure.
func hasInitialized(pod *v1.Pod, s *v1.PodStatus) bool {
	if len(pod.Spec.InitContainers) == 0 {
		return true
	}
	for i := range s.ContainerStatuses {
		if s.ContainerStatuses[i].LastTerminationState.Terminated != nil ||
			s.ContainerStatuses[i].State.Waiting == nil {
			return true
		}
	}
	last := &pod.Spec.InitContainers[len(pod.Spec.InitContainers)-1]
	cs := find(s.InitContainerStatuses, last.Name)
	if cs == nil {
		return false
	}
	if pods.Sidecar(last) {
		return cs.State.Running != nil && cs.Started != nil && *cs.Started
	}
	for _, state := range []v1.ContainerState{cs.State, cs.LastTerminationState} {
		if state.Terminated != nil && state.Terminated.ExitCode == 0 {
			return true
		}
	}
	return false
}

// startedPrefix is how many init containers, counted from the first, have tried to start. It is at
// least one if there are init containers.
func startedPrefix(statuses []v1.ContainerStatus) int {
	for i := len(statuses) - 1; i > 0; i-- {
		if statuses[i].State.Waiting == nil || statuses[i].LastTerminationState.Terminated != nil {
			return i + 1
		}
	}
	return min(1, len(statuses))
}

// podIPs are the pod's addresses. A host network pod has the node's addresses, set once (a second
// family may be added later). Any other pod has its sandbox's addresses, and keeps the previous
// ones once the sandbox has stopped.
func podIPs(in *Input) []v1.PodIP {
	previous := in.previous().PodIPs
	if in.Pod.Spec.HostNetwork && in.PodIPs == nil {
		if len(previous) >= len(in.HostIPs) {
			return clonePodIPs(previous)
		}
		out := clonePodIPs(previous)
		for _, ip := range in.HostIPs[len(previous):] {
			out = append(out, v1.PodIP{IP: ip})
		}
		return out
	}
	ips := in.PodIPs
	if ips == nil {
		if in.Sandbox == nil || in.Sandbox.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
			return clonePodIPs(previous)
		}
		ips = append(ips, in.Sandbox.GetNetwork().GetIp())
		for _, more := range in.Sandbox.GetNetwork().GetAdditionalIps() {
			ips = append(ips, more.GetIp())
		}
	}
	return orderIPs(ips, in.HostIPs)
}

func clonePodIPs(ips []v1.PodIP) []v1.PodIP {
	return append([]v1.PodIP(nil), ips...)
}

// orderIPs returns the first address of the node's primary family, then the first address of the
// other family.
func orderIPs(ips, hostIPs []string) []v1.PodIP {
	wantV4 := true
	if len(hostIPs) > 0 {
		if ip, err := netip.ParseAddr(hostIPs[0]); err == nil {
			wantV4 = ip.Unmap().Is4()
		}
	}
	var out []v1.PodIP
	for _, v4 := range []bool{wantV4, !wantV4} {
		for _, text := range ips {
			if ip, err := netip.ParseAddr(text); err == nil && ip.Unmap().Is4() == v4 {
				out = append(out, v1.PodIP{IP: ip.Unmap().String()})
				break
			}
		}
	}
	return out
}

// hostIPs are the node's addresses, or the previous ones as long as the node does not know its own.
func hostIPs(in *Input) []v1.HostIP {
	var out []v1.HostIP
	for _, ip := range in.HostIPs {
		out = append(out, v1.HostIP{IP: ip})
	}
	if out == nil {
		out = append(out, in.previous().HostIPs...)
	}
	return out
}

// finish sets what depends only on the previous status: transition times, start time, generation,
// and the limits and precision of the API.
func finish(in *Input, s *v1.PodStatus) v1.PodStatus {
	previous := in.previous()
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if !ownedConditions[c.Type] && c.Type != v1.DisruptionTarget {
			continue
		}
		if old := condition(previous.Conditions, c.Type); old != nil && old.Status == c.Status &&
			!old.LastTransitionTime.IsZero() {
			c.LastTransitionTime = old.LastTransitionTime
		} else {
			c.LastTransitionTime = in.Now
		}
	}
	switch {
	case previous.StartTime != nil && !previous.StartTime.IsZero():
		s.StartTime = previous.StartTime.DeepCopy()
	case in.Pod.Status.StartTime != nil && !in.Pod.Status.StartTime.IsZero():
		s.StartTime = in.Pod.Status.StartTime.DeepCopy()
	default:
		now := in.Now
		s.StartTime = &now
	}
	s.ObservedGeneration = max(in.Pod.Generation, previous.ObservedGeneration)
	s.ResourceClaimStatuses = in.Pod.Status.ResourceClaimStatuses
	s.ExtendedResourceClaimStatus = in.Pod.Status.ExtendedResourceClaimStatus
	s.NominatedNodeName = in.Pod.Status.NominatedNodeName
	normalize(in.Pod, s)
	return *s.DeepCopy()
}

// normalize cuts times to whole seconds (the API's precision) and messages to their limit.
func normalize(pod *v1.Pod, s *v1.PodStatus) {
	limit := messageLimit(len(pod.Spec.Containers) + len(pod.Spec.InitContainers) + len(pod.Spec.EphemeralContainers))
	second := func(t *metav1.Time) { *t = t.Rfc3339Copy() }
	second(s.StartTime)
	for i := range s.Conditions {
		second(&s.Conditions[i].LastProbeTime)
		second(&s.Conditions[i].LastTransitionTime)
	}
	for _, list := range [][]v1.ContainerStatus{
		s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses,
	} {
		for i := range list {
			for _, state := range []*v1.ContainerState{&list[i].State, &list[i].LastTerminationState} {
				if state.Running != nil {
					second(&state.Running.StartedAt)
				}
				if end := state.Terminated; end != nil {
					second(&end.StartedAt)
					second(&end.FinishedAt)
					end.Message = head(end.Message, limit)
				}
			}
		}
	}
}
