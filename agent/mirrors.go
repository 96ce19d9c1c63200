package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/worker"
)

// keepMirrors shows the static pods in the API server.
func (a *Agent) keepMirrors(ctx context.Context) error { return a.mirrors.Run(ctx) }

// staticChanged has the mirrors looked at: static pods came or went, or the Node is another one.
func (a *Agent) staticChanged() {
	if a.mirrors != nil {
		a.mirrors.Wake()
	}
}

// staticPods returns the node's static pods by full name, and whether every source of such has said which there are. One that is leaving is shown until it is gone, and its
// successor from then on.
func (a *Agent) staticPods() (pods map[string]*v1.Pod, known bool) {
	pods = map[string]*v1.Pod{}
	for _, e := range a.workers.List() {
		over := e.Phase == worker.Terminated && e.Forget // only its records are left, and they are going
		if source.Static(e.Pod) && !e.Waiting && !over && !placeholder(e.Pod) {
			pods[e.Pod.Namespace+"/"+e.Pod.Name] = e.Pod
		}
	}
	return pods, a.desired.staticReady()
}

// mirrored returns the UID under which the static pod runs that a mirror pod shows. A static pod that was resized has another hash than its UID.
func (a *Agent) mirrored(mirror *v1.Pod) podUID {
	hash := mirror.Annotations[v1.MirrorPodAnnotationKey]
	for uid, e := range a.workers.List() {
		if source.Static(e.Pod) && e.Pod.Namespace == mirror.Namespace && e.Pod.Name == mirror.Name && e.Pod.Annotations[source.AnnotationHash] == hash {
			return uid
		}
	}
	return podUID(hash)
}
