package status

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DefaultRuntimeName is the scheme of container ids in statuses if [Input.RuntimeName] is empty:
// `containerd://<id>`.
const DefaultRuntimeName = "containerd"

// Input has everything that a pod's status is derived from. Its facts have several owners, and each
// owner sets its own part. Every field but Pod and Now may be zero. Derive only reads it.
type Input struct {
	// Pod is the desired pod. Its own status is the API server's (empty for pods of local
	// manifests): conditions with another owner than the node are kept from there, and a final
	// phase there stays final.
	Pod *v1.Pod
	// Previous is the status that was last derived for this UID. It is nil for the first time, and
	// Pod.Status takes its place then.
	Previous *v1.PodStatus

	Runtime
	// Sandbox is the latest sandbox; nil if there is none.
	Sandbox *runtimeapi.PodSandboxStatus
	// Containers are all known attempts of all containers, in any order. Metadata.Name is the
	// container's name, Metadata.Attempt its restart count.
	Containers []*runtimeapi.ContainerStatus
	// Earlier has the runtime ids of containers that were made in an earlier sandbox than Sandbox.
	Earlier map[string]bool

	// TerminationMessages has the result of [TerminationMessage] for exited containers, by runtime
	// id.
	TerminationMessages map[string]string
	// Waiting says, by container name, why a container does not run: the last message of the step
	// that works on it. It is shown only while the container is to be started or restarted.
	Waiting map[string]Reason
	// Probes has the probe results of each container's running attempt, by container name.
	Probes map[string]Probe
	// Hooked has the runtime ids of the containers whose postStart hook runs. Until the hook has
	// ended, they are Waiting, have not started and are not ready.
	Hooked map[string]bool

	Restarting

	// HostIPs are the node's addresses: the primary one first, at most one of each family.
	HostIPs []string
	// PodIPs are the pod's addresses if the caller knows them better than Sandbox. nil means: from
	// Sandbox, and from Previous once the sandbox has stopped.
	PodIPs []string

	// Rejected is set if admission refused the pod. The pod is Failed and never gets containers.
	Rejected *Failure
	// Failed is set if the pod must end as Failed, whatever its containers do: deadline, eviction,
	// preemption, shutdown. The phase changes once no container runs any more.
	Failed *Failure
	// Terminating says that the pod is being taken down. Nothing will be started or restarted.
	Terminating bool
	// Terminated says that the pod was taken down: no container runs, and this status is its last
	// one.
	Terminated bool
	Allocated
	// Problem says why containers cannot start in the pod: the failed step and its error (reason
	// and message of PodReadyToStartContainers).
	Problem Reason

	// Now is the time of new transitions.
	Now metav1.Time
}

// Runtime is what the status says of the container runtime.
type Runtime struct {
	// RuntimeName is the scheme of container ids; empty means DefaultRuntimeName.
	RuntimeName string
	// RecursiveReadOnly says whether the pod's runtime handler can mount recursively read-only.
	RecursiveReadOnly bool
}

// Allocated is what the pod has of the node.
type Allocated struct {
	// Resize is the progress of the pod's resize; nil for a pod that has what its spec asks for.
	Resize *Resize
	// Devices has the health of the devices of containers, by container name. A container without an
	// entry keeps what its previous status has.
	Devices map[string][]v1.ResourceStatus
	// Claims says that the pod has resource claims that are not given back yet.
	Claims bool
}

// Restarting are the containers that start again whatever they ended with.
type Restarting struct {
	// Killed has the runtime ids of the containers that were killed to be restarted.
	Killed map[string]bool
	// RestartingAll says that all containers are being stopped and removed, to start again
	// (KEP-5532). Removed has the names of those that were removed for that and do not exist again
	// yet.
	RestartingAll bool
	Removed       map[string]bool
}

// Reason is a CamelCase reason and a text for people.
type Reason struct {
	Reason  string
	Message string
}

// Probe is the probe result of one attempt of a container. A nil result means that no probe of that
// kind has answered yet. Then the previous status of the same attempt counts (so a restart of the
// agent changes nothing), or else the result is false. Results of probes that the container does
// not have are ignored.
type Probe struct {
	// ContainerID is the runtime's id of the attempt. Results for another attempt than the running
	// one are ignored.
	ContainerID string
	// Started is the startup probe's result.
	Started *bool
	// Ready is the readiness probe's result.
	Ready *bool
}

// Failure is why a pod must fail.
type Failure struct {
	// Reason is the pod's status reason: Evicted, DeadlineExceeded, OutOfcpu, …
	Reason string
	// Message is the pod's status message. Derive puts "Pod was rejected: " before the message of a
	// rejection.
	Message string
	// Disruption, if not empty, adds the condition DisruptionTarget with this reason
	// (TerminationByKubelet). Disrupted is the condition's message.
	Disruption, Disrupted string
	// Yields says that a pod of the API server succeeds nevertheless, without Reason and Message, if
	// all its containers have ended with 0: a kubelet's status of such a pod follows from the
	// containers, but for the condition DisruptionTarget.
	Yields bool
}

// Reasons of container states and conditions that Derive itself sets, in the API's spelling.
const (
	ReasonContainerCreating = "ContainerCreating"
	ReasonPodInitializing   = "PodInitializing"
	ReasonStatusUnknown     = "ContainerStatusUnknown"
	ReasonCompleted         = "Completed"
	ReasonRestartingAll     = "RestartingAllContainers"

	ReasonPodCompleted             = "PodCompleted"
	ReasonPodFailed                = "PodFailed"
	ReasonContainersNotReady       = "ContainersNotReady"
	ReasonContainersNotInitialized = "ContainersNotInitialized"
	ReasonReadinessGatesNotReady   = "ReadinessGatesNotReady"
	ReasonRestartAllStarted        = "RestartAllContainersStarted"
)

// exitCodeUnknown is the exit code of a container that ran and was lost: 128 + SIGKILL.
const exitCodeUnknown = 137

// previous returns the status to continue from.
func (in *Input) previous() *v1.PodStatus {
	if in.Previous != nil {
		return in.Previous
	}
	return &in.Pod.Status
}

// terminating reports whether the pod is being taken down, so that none of its containers will be
// started again.
func (in *Input) terminating() bool {
	return in.Terminating || in.Terminated || in.Pod.DeletionTimestamp != nil
}
