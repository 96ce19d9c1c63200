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

// shownBy returns the UID of the static pod that a mirror pod shows. A static pod that was resized
// has a hash that differs from its UID.
func (m *Member) shownBy(mirror *v1.Pod) types.UID {
	hash := mirror.Annotations[v1.MirrorPodAnnotationKey]
	for uid, e := range m.deps.Workers.List() {
		if pods.Static(e.Pod) && e.Pod.Namespace == mirror.Namespace && e.Pod.Name == mirror.Name &&
			e.Pod.Annotations[pods.AnnotationHash] == hash {
			return uid
		}
	}
	return types.UID(hash)
}

// Mirrored returns the status that the API server has of a static pod; nil if the API server has
// not been read, or shows another version of the pod.
func (m *Member) Mirrored(pod *v1.Pod) *v1.PodStatus {
	if shown := m.mirrors.Mirror(pods.FullName(pod)); shown != nil && mirror.Shows(shown, pod) {
		return &shown.Status
	}
	return nil
}
