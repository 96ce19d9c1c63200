package agent

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/berthd/berth/agent/generate"
	"github.com/berthd/berth/agent/runtimeclass"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/worker"
)

// classed returns a pod that a source wants with what its RuntimeClass gives it: what it was admitted with, as its worker has it, else what the class says
// now. A pod whose class is not there, or contradicts it, stays as it is, and is told by its own pass.
func (a *Agent) classed(pod *v1.Pod, known worker.Entry) *v1.Pod {
	name := runtimeclass.Name(pod)
	if name == "" {
		return pod
	}
	if source.Bound(pod) {
		return pod // the API server's admission has given it that
	}
	if known.Pod != nil && a.admitted.has(pod.UID) {
		return runtimeclass.Keep(pod, known.Pod)
	}
	class := a.objects.RuntimeClass(name)
	if class == nil {
		return pod
	}
	applied, err := runtimeclass.Apply(pod, class)
	if err != nil {
		return pod
	}
	return applied
}

// onlyClassed reports whether a pod differs from what its worker has only by what its RuntimeClass gave it, before it was admitted: it is the same pod.
func (a *Agent) onlyClassed(pod *v1.Pod, known worker.Entry) bool {
	return known.Phase == worker.Running && !a.admitted.has(pod.UID) && equality.Semantic.DeepEqual(runtimeclass.Keep(pod, known.Pod).Spec, known.Pod.Spec)
}

// handler returns the name of the runtime handler that runs the pod, empty for the runtime's own choice.
func (a *Agent) handler(pod *v1.Pod) (string, error) {
	name := runtimeclass.Name(pod)
	if name == "" {
		return "", nil
	}
	class := a.podObjects.runtimeClass(pod, name)
	if class == nil {
		return "", runtimeclass.NotFound(name)
	}
	return class.Handler, nil
}

// generate returns what translating a pod must know of the node and of the pod's runtime handler, which can do nothing as long as it is not known.
func (a *Agent) generate(pod *v1.Pod) generate.Node {
	handler, err := a.handler(pod)
	out := a.node.Generate(handler)
	if err != nil {
		out.Features.RecursiveReadOnly = false
	}
	return out
}

// classChanged wakes the pods that have a local RuntimeClass.
func (a *Agent) classChanged(name string) {
	for uid, e := range a.workers.List() {
		if e.Phase == worker.Running && !source.Bound(e.Pod) && runtimeclass.Name(e.Pod) == name {
			a.workers.Wake(uid)
		}
	}
}
