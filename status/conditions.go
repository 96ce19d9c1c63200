package status

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/pods"
)

// ownedConditions are the condition types that the node sets. All other types in a pod's status
// have another owner and are kept.
var ownedConditions = map[v1.PodConditionType]bool{
	v1.PodReadyToStartContainers: true,
	v1.PodInitialized:            true,
	v1.PodReady:                  true,
	v1.ContainersReady:           true,
	v1.PodScheduled:              true,
	v1.PodResizeInProgress:       true,
	v1.PodResizePending:          true,
	v1.AllContainersRestarting:   true,
}

// conditions returns the pod's conditions, in the order in which a kubelet lists them.
func conditions(in *Input, s *v1.PodStatus) []v1.PodCondition {
	out := append(resizeConditions(in), unmanagedConditions(in)...)
	if c := disruption(in); c != nil {
		out = append(out, *c)
	}
	ready := containersReady(in.Pod, s)
	for _, c := range []v1.PodCondition{
		readyToStart(in),
		initialized(in, s),
		podReady(in.Pod, out, ready),
		ready,
		{Type: v1.PodScheduled, Status: v1.ConditionTrue},
	} {
		c.ObservedGeneration = in.Pod.Generation
		out = append(out, c)
	}
	if couldRestartAll(in.Pod) {
		out = append(out, restartingAll(in, s.Phase))
	}
	return out
}

// couldRestartAll reports whether a rule of the pod may restart all of its containers.
func couldRestartAll(pod *v1.Pod) bool {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, rule := range list[i].RestartPolicyRules {
				if rule.Action == v1.ContainerRestartRuleActionRestartAllContainers {
					return true
				}
			}
		}
	}
	return false
}

// restartingAll is the condition that says whether all containers are being stopped to start again.
func restartingAll(in *Input, phase v1.PodPhase) v1.PodCondition {
	c := v1.PodCondition{
		Type:               v1.AllContainersRestarting,
		Status:             v1.ConditionFalse,
		ObservedGeneration: in.Pod.Generation,
	}
	switch {
	case phase == v1.PodSucceeded:
		c.Reason = ReasonPodCompleted
	case phase == v1.PodFailed:
		c.Reason = ReasonPodFailed
	case in.RestartingAll:
		c.Status, c.Reason, c.Message = v1.ConditionTrue, ReasonRestartAllStarted,
			"container exited with restart policy rule"
	}
	return c
}

// unmanagedConditions are the conditions of the API's status that have another owner than the node.
func unmanagedConditions(in *Input) []v1.PodCondition {
	return UnmanagedConditions(in.Pod)
}

// UnmanagedConditions returns copies of those conditions in a pod's status, as the API server has
// it, that have another owner than the node.
func UnmanagedConditions(pod *v1.Pod) []v1.PodCondition {
	var out []v1.PodCondition
	for _, c := range pod.Status.Conditions {
		if !ownedConditions[c.Type] && c.Type != v1.DisruptionTarget {
			out = append(out, *c.DeepCopy())
		}
	}
	return out
}

// disruption is the DisruptionTarget condition. Once it is set, it stays.
func disruption(in *Input) *v1.PodCondition {
	for _, from := range []*v1.PodStatus{in.previous(), &in.Pod.Status} {
		if c := condition(from.Conditions, v1.DisruptionTarget); c != nil && c.Status == v1.ConditionTrue {
			return c.DeepCopy()
		}
	}
	if in.Failed == nil || in.Failed.Disruption == "" {
		return nil
	}
	return &v1.PodCondition{
		Type:               v1.DisruptionTarget,
		Status:             v1.ConditionTrue,
		Reason:             in.Failed.Disruption,
		Message:            in.Failed.Disrupted,
		ObservedGeneration: in.Pod.Generation,
	}
}

// readyToStart is the condition that says whether the pod has a sandbox with a network in which
// containers can start.
func readyToStart(in *Input) v1.PodCondition {
	c := v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse}
	if sandboxUsable(in.Pod, in.Sandbox) {
		c.Status = v1.ConditionTrue
		return c
	}
	c.Reason, c.Message = in.Problem.Reason, in.Problem.Message
	return c
}

// sandboxUsable reports whether containers can be started in the sandbox: it is ready, has the
// network mode that the pod wants, and an address.
func sandboxUsable(pod *v1.Pod, sandbox *runtimeapi.PodSandboxStatus) bool {
	if sandbox == nil || sandbox.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		return false
	}
	want := runtimeapi.NamespaceMode_POD
	if pod.Spec.HostNetwork {
		want = runtimeapi.NamespaceMode_NODE
	}
	if sandbox.GetLinux().GetNamespaces().GetOptions().GetNetwork() != want {
		return false
	}
	return pod.Spec.HostNetwork || sandbox.GetNetwork() == nil || sandbox.GetNetwork().GetIp() != ""
}

// initialized is the condition that says whether all init containers completed and all sidecars
// started. A pod that was initialized once stays initialized, also while its init containers run
// again (KEP-5532).
func initialized(in *Input, s *v1.PodStatus) v1.PodCondition {
	pod := in.Pod
	c := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	var unknown, incomplete []string
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		cs := find(s.InitContainerStatuses, container.Name)
		switch {
		case cs == nil:
			unknown = append(unknown, container.Name)
		case !initDone(container, cs):
			incomplete = append(incomplete, container.Name)
		}
	}
	if s.Phase == v1.PodSucceeded && len(unknown) == 0 {
		c.Reason = ReasonPodCompleted
		return c
	}
	for i := range pod.Spec.Containers {
		// A regular container that ever started proves it, also while a sidecar restarts.
		cs := find(s.ContainerStatuses, pod.Spec.Containers[i].Name)
		if cs != nil && (cs.State.Running != nil || cs.State.Terminated != nil) {
			return c
		}
	}
	if before := condition(in.previous().Conditions, v1.PodInitialized); before != nil &&
		before.Status == v1.ConditionTrue {
		return c
	}
	if message := listed("unknown", unknown, "incomplete", incomplete); message != "" {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, ReasonContainersNotInitialized, message
	}
	return c
}

// initDone reports whether this init container lets the next container start.
func initDone(c *v1.Container, s *v1.ContainerStatus) bool {
	if pods.Sidecar(c) {
		return s.Started != nil && *s.Started
	}
	return s.Ready
}

// containersReady is the condition that says whether all regular containers and sidecars are ready.
func containersReady(pod *v1.Pod, s *v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse}
	var unknown, unready []string
	check := func(name string, statuses []v1.ContainerStatus) {
		switch cs := find(statuses, name); {
		case cs == nil:
			unknown = append(unknown, name)
		case !cs.Ready:
			unready = append(unready, name)
		}
	}
	for i := range pod.Spec.InitContainers {
		if pods.Sidecar(&pod.Spec.InitContainers[i]) {
			check(pod.Spec.InitContainers[i].Name, s.InitContainerStatuses)
		}
	}
	for i := range pod.Spec.Containers {
		check(pod.Spec.Containers[i].Name, s.ContainerStatuses)
	}
	switch message := listed("unknown", unknown, "unready", unready); {
	case s.Phase == v1.PodSucceeded && len(unknown) == 0:
		c.Reason = ReasonPodCompleted
	case s.Phase == v1.PodFailed:
		c.Reason = ReasonPodFailed
	case message != "":
		c.Reason, c.Message = ReasonContainersNotReady, message
	default:
		c.Status = v1.ConditionTrue
	}
	return c
}

// podReady combines containersReady with the pod's readiness gates. Readiness gates are conditions
// that others set.
func podReady(pod *v1.Pod, others []v1.PodCondition, containers v1.PodCondition) v1.PodCondition {
	c := containers
	c.Type = v1.PodReady
	if c.Status != v1.ConditionTrue {
		return c
	}
	var missing []string
	for _, gate := range pod.Spec.ReadinessGates {
		switch other := condition(others, gate.ConditionType); {
		case other == nil:
			missing = append(missing,
				fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.",
					string(gate.ConditionType)))
		case other.Status != v1.ConditionTrue:
			missing = append(missing,
				fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", string(gate.ConditionType),
					other.Status))
		}
	}
	if len(missing) > 0 {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, ReasonReadinessGatesNotReady, strings.Join(missing, ", ")
	}
	return c
}

// listed returns the names of two groups of containers, in the form of the conditions' messages.
func listed(label1 string, names1 []string, label2 string, names2 []string) string {
	var parts []string
	if len(names1) > 0 {
		parts = append(parts, fmt.Sprintf("containers with %s status: %s", label1, names1))
	}
	if len(names2) > 0 {
		parts = append(parts, fmt.Sprintf("containers with %s status: %s", label2, names2))
	}
	return strings.Join(parts, ", ")
}

// condition returns the condition of a type, or nil.
func condition(list []v1.PodCondition, t v1.PodConditionType) *v1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}
