package status

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DefaultRuntimeName is the scheme of container ids in statuses where [Input.RuntimeName] is empty: `containerd://<id>`.
const DefaultRuntimeName = "containerd"

// Input is everything that a pod's status is derived from. It is a record of facts from several owners, each of whom fills its own part;
// every part but Pod and Now may be zero. Derive only reads it.
type Input struct {
	// Pod is the desired pod. Its own status is the API server's (empty for pods of local manifests): conditions that are not the
	// node's are kept from there, and a terminal phase there is final, too.
	Pod *v1.Pod
	// Previous is the status last derived for this UID; nil for the first time, and then Pod.Status takes its place.
	Previous *v1.PodStatus

	// RuntimeName is the scheme of container ids; empty means DefaultRuntimeName.
	RuntimeName string
	// Sandbox is the latest sandbox; nil when there is none.
	Sandbox *runtimeapi.PodSandboxStatus
	// Containers are all known incarnations of all containers, in any order. Metadata.Name is the container's name, Metadata.Attempt its restart count.
	Containers []*runtimeapi.ContainerStatus
	// Earlier holds the runtime ids of those that were made in an earlier sandbox than Sandbox.
	Earlier map[string]bool
	// RecursiveReadOnly says whether the pod's runtime handler can mount recursively read-only.
	RecursiveReadOnly bool

	// TerminationMessages holds, by runtime id, what [TerminationMessage] returned for exited containers.
	TerminationMessages map[string]string
	// Waiting says, by container name, why a container does not run: what the step that works on it last said. It is shown only while
	// the container is to be started or restarted.
	Waiting map[string]Reason
	// Probes holds, by container name, what the probes of its running incarnation say.
	Probes map[string]Probe
	// Hooked holds the runtime ids of the containers whose postStart hook is under way: until it has ended they are Waiting, have not started and are
	// not ready.
	Hooked map[string]bool

	// Condemned holds the runtime ids of the containers that were killed to be started again, whatever they ended with.
	Condemned map[string]bool
	// RestartingAll says that all containers are being ended and removed, to start again (KEP-5532), and Removed, by name, which of them were removed by that
	// and not made again yet.
	RestartingAll bool
	Removed       map[string]bool

	// HostIPs are the node's addresses, the primary one first, at most one of each family.
	HostIPs []string
	// PodIPs are the pod's addresses where the caller knows better than Sandbox; nil means: take them from Sandbox, and from Previous once it is stopped.
	PodIPs []string

	// Rejected is set when admission refused the pod: it is Failed and never gets containers.
	Rejected *Failure
	// Failed is set when the pod must end as Failed whatever its containers say: deadline, eviction, preemption, shutdown.
	// The phase changes once no container runs any more.
	Failed *Failure
	// Terminating says that the pod is being taken down, so nothing will be started or restarted.
	Terminating bool
	// Terminated says that the pod was taken down: no container runs, and this status is its last one.
	Terminated bool
	// Resize is how far the pod's resize has come; nil for a pod that has what its spec asks for.
	Resize *Resize
	// Problem says why the pod is not ready to start containers: the failed step and its error (PodReadyToStartContainers' reason and message).
	Problem Reason

	// Now is the time of new transitions.
	Now metav1.Time
}

// Reason is a CamelCase reason and a text for people.
type Reason struct {
	Reason  string
	Message string
}

// Probe is what the probes say about one incarnation of a container. A nil result means that no probe of that kind has answered yet: the
// previous status of the same incarnation holds (so an agent's restart changes nothing), and without one the answer is no. Results of
// probes that the container does not have are ignored.
type Probe struct {
	// ContainerID is the runtime's id of the incarnation; results for another one than the running one are ignored.
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
	// Message is the pod's status message. For a rejection, Derive puts "Pod was rejected: " before it.
	Message string
	// Disruption, when not empty, adds the condition DisruptionTarget with this reason (TerminationByKubelet) and Message.
	Disruption string
}

// Reasons of container states and conditions that Derive itself gives; the spelling is the API's.
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

// exitCodeUnknown is the exit code given to a container that ran and vanished: 128 + SIGKILL.
const exitCodeUnknown = 137

// configSourceAnnotation says where a pod came from; anything but sourceAPI is a static pod.
const (
	configSourceAnnotation = "kubernetes.io/config.source"
	sourceAPI              = "api"
)

// isStatic reports whether the pod came from a local manifest or URL.
func isStatic(pod *v1.Pod) bool {
	source, ok := pod.Annotations[configSourceAnnotation]
	return ok && source != sourceAPI
}

// previous returns the status to continue from.
func (in *Input) previous() *v1.PodStatus {
	if in.Previous != nil {
		return in.Previous
	}
	return &in.Pod.Status
}

// leaving reports whether the pod is on its way out, so that none of its containers will be started again.
func (in *Input) leaving() bool {
	return in.Terminating || in.Terminated || in.Pod.DeletionTimestamp != nil
}
