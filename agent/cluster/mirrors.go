package cluster

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/cluster/mirror"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
)

// staticPods returns the node's static pods by full name, and whether every source of static pods
// has said which pods it wants. A pod that is leaving is shown until it is gone; from then on its
// successor is shown.
func (m *Member) staticPods() (static map[string]*v1.Pod, known bool) {
	static = map[string]*v1.Pod{}
	for _, e := range m.deps.Workers.List() {
		// only the pod's records are left, and they are being removed
		over := e.Phase == worker.Terminated && e.Unwanted
		if pods.Static(e.Pod) && !e.Waiting && !over && !pods.RuntimeOnly(e.Pod) {
			static[pods.FullName(e.Pod)] = e.Pod
		}
	}
	return static, m.deps.Desired.StaticReady()
}

// shownBy returns the UID of the static pod that a mirror pod shows; empty if this node has no such
// pod. Whoever may create pods in any namespace can write any UID into the annotation of a mirror
// pod: the namespace and the name must be those of the static pod, too.
func (m *Member) shownBy(shown *v1.Pod) types.UID {
	hash := shown.Annotations[v1.MirrorPodAnnotationKey]
	shows := func(pod *v1.Pod) bool {
		return pods.Static(pod) && pod.Namespace == shown.Namespace && pod.Name == shown.Name &&
			pod.Annotations[pods.AnnotationHash] == hash
	}
	if e, ok := m.deps.Workers.Get(types.UID(hash)); ok && shows(e.Pod) {
		return e.Pod.UID
	}
	for uid, e := range m.deps.Workers.List() { // a pod that was resized has another UID than its hash
		if shows(e.Pod) {
			return uid
		}
	}
	return ""
}

// Mirrored returns the status that the API server has of a static pod; nil if the API server has
// not been read, or shows another version of the pod.
func (m *Member) Mirrored(pod *v1.Pod) *v1.PodStatus {
	if shown := m.mirrors.Mirror(pods.FullName(pod)); shown != nil && mirror.Shows(shown, pod) {
		return &shown.Status
	}
	return nil
}
