// Package pods has the questions that every part of berth asks of a pod: where it came from,
// whether it has ended, which of its containers are sidecars.
//
// Purpose: one answer to each question, below all packages that ask it.
//
// Truth owned: the meaning of the kubelet's annotations kubernetes.io/config.* on pods, and of
// those of berth that several packages know. The functions are pure.
//
// Concurrency: none.
package pods

import (
	"maps"

	v1 "k8s.io/api/core/v1"
)

// SourceFile, SourceHTTP and SourceAPI are the names of the sources of pods, as they stand in
// [AnnotationSource].
const (
	SourceFile = "file"
	SourceHTTP = "http"
	SourceAPI  = "api"
)

// Annotations of pods; the names are the kubelet's (pkg/kubelet/types).
const (
	// AnnotationSource names the source that a pod came from.
	AnnotationSource = "kubernetes.io/config.source"
	// AnnotationSeen is when the agent first saw the pod, in the format of RFC 3339.
	AnnotationSeen = "kubernetes.io/config.seen"
	// AnnotationHash is a static pod's UID as it was read, which is a hash over the manifest unless
	// the manifest sets the UID.
	AnnotationHash = "kubernetes.io/config.hash"
)

// Annotations of static pods that are berth's own.
const (
	// AnnotationStart in a manifest, with the value "true", starts its stopped pod when the manifest
	// changes. Without the annotation, a changed manifest leaves the pod stopped.
	AnnotationStart = "berth.dev/start-when-changed"
	// AnnotationContent is a hash over the manifest of a pod with [AnnotationStart] whose manifest
	// sets the UID: the pod's [AnnotationHash] is that UID, and does not change.
	AnnotationContent = "berth.dev/content-hash"
)

// ManifestAnnotations returns the annotations from a pod's manifest, without those that the agent
// adds.
func ManifestAnnotations(pod *v1.Pod) map[string]string {
	out := maps.Clone(pod.Annotations)
	for _, added := range []string{AnnotationHash, AnnotationSeen, AnnotationSource, AnnotationContent} {
		delete(out, added)
	}
	return out
}

// ReasonStopped is the reason in the status of a pod that an operator has stopped ("berth stop").
const ReasonStopped = "Stopped"

// ReasonDrained is the reason in the status of a pod that a drain of the node has stopped ("berth
// drain").
const ReasonDrained = "Drained"

// Held reports whether an operator or a drain has stopped the pod, so that it does not run until
// somebody starts it. Its containers may still end.
func Held(pod *v1.Pod) bool {
	reason := pod.Status.Reason
	return (reason == ReasonStopped || reason == ReasonDrained) && !FromAPI(pod)
}

// Source returns the name of the source that the pod came from; empty if nobody knows it.
func Source(pod *v1.Pod) string { return pod.Annotations[AnnotationSource] }

// FromAPI reports whether the pod came from an API server, which has bound it to this node. The
// answer is what the mux of the sources wrote on the pod, whatever the pod said itself.
func FromAPI(pod *v1.Pod) bool { return Source(pod) == SourceAPI }

// Static reports whether the pod came from a manifest: a file's or a URL's.
func Static(pod *v1.Pod) bool {
	from := Source(pod)
	return from == SourceFile || from == SourceHTTP
}

// Mirror reports whether a pod of the API server only shows a static pod.
func Mirror(pod *v1.Pod) bool {
	_, ok := pod.Annotations[v1.MirrorPodAnnotationKey]
	return ok
}

// RuntimeOnly reports whether the pod was made up from what the runtime says: such a pod has no
// spec. It can be stopped, but not run.
func RuntimeOnly(pod *v1.Pod) bool { return len(pod.Spec.Containers) == 0 }

// FullName returns "namespace/name".
func FullName(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

// Terminal reports whether a phase is final: Succeeded or Failed.
func Terminal(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }

// Sidecar reports whether an init container is a sidecar: one that goes on running beside the app
// containers (KEP-753).
func Sidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

const (
	// Critical is the least priority of a critical pod (scheduling.k8s.io, SystemCriticalPriority).
	Critical int32 = 2_000_000_000
	// NodeCritical is the priority of the class system-node-critical.
	NodeCritical int32 = Critical + 1000
)

// Priority returns a pod's priority. A pod that no admission has given a number has the number of
// its class, if its class is one of the two that every cluster has, and 0 otherwise.
func Priority(pod *v1.Pod) int32 {
	switch {
	case pod.Spec.Priority != nil:
		return *pod.Spec.Priority
	case pod.Spec.PriorityClassName == "system-node-critical":
		return NodeCritical
	case pod.Spec.PriorityClassName == "system-cluster-critical":
		return Critical
	}
	return 0
}

// IsCritical reports whether a node must have the pod even under pressure, by the kubelet's rule: a
// static pod, a mirror pod, or a pod of a critical priority.
func IsCritical(pod *v1.Pod) bool {
	return Static(pod) || Mirror(pod) || Priority(pod) >= Critical
}

// TrueFirst compares what is so of two pods for an order in which true comes before false. It
// returns what [cmp.Compare] does.
func TrueFirst(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}
