package desired

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/runtimeclass"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/internal/pods"
)

// wantStatic gives the worker of a static pod the version of the pod that its manifest has now. A
// pod that changed under its own UID is replaced, unless the pod can be resized.
func (r *Reconciler) wantStatic(pod *v1.Pod, e worker.Entry, known bool) {
	stays := known && !e.Unwanted
	if stays && r.compare(e.Pod, pod, same) {
		return
	}
	changed := stays && !pods.RuntimeOnly(e.Pod) && !equality.Semantic.DeepEqual(e.Pod.Spec, pod.Spec)
	switch {
	case changed && !r.onlyClassed(pod, e) && !r.resizes(e, pod):
		r.log.Info("static pod changed under its own uid: it is replaced", "pod", pods.FullName(pod), "uid", pod.UID)
		r.reportChange(e.Pod, pod)
		r.deps.Workers.Remove(pod.UID)
	case stays:
		pod = seenFirst(pod, e.Pod)
	}
	r.deps.Workers.Set(pod)
}

// seenFirst returns a new version of a pod that has a worker. The new version gets the time at
// which the worker's version was first seen.
func seenFirst(pod, known *v1.Pod) *v1.Pod {
	seen := known.Annotations[pods.AnnotationSeen]
	if seen == "" || pod.Annotations[pods.AnnotationSeen] == seen {
		return pod
	}
	out := *pod
	out.Annotations = maps.Clone(pod.Annotations)
	out.Annotations[pods.AnnotationSeen] = seen
	return &out
}

// resizes reports whether a wanted pod is a running pod with other resources. Such a pod is resized
// instead of replaced.
func (r *Reconciler) resizes(known worker.Entry, pod *v1.Pod) bool {
	return r.cfg.ResizeStatic && known.Phase == worker.Running && !known.Unwanted && !known.Waiting &&
		!pods.RuntimeOnly(known.Pod) &&
		r.deps.Admitted(known.Pod.UID) && !equality.Semantic.DeepEqual(known.Pod.Spec, pod.Spec) &&
		source.Resizable(known.Pod, pod) == nil
}

// continued looks for static pods whose edited manifest is only a resize, and gives them the UIDs
// under which they run or ended. The UID of a static pod is a hash over its manifest. The
// annotation kubernetes.io/config.hash has the newest hash, by which this agent and the next agent
// recognize the pod.
func (r *Reconciler) continued(u source.Update) source.Update {
	running := map[string]worker.Entry{}
	for uid, e := range r.deps.Workers.List() {
		stays := !e.Unwanted && !e.Waiting && !pods.RuntimeOnly(e.Pod) && !pods.FromAPI(e.Pod)
		if _, wanted := u.Pods[uid]; !wanted && stays {
			running[pods.FullName(e.Pod)] = e
		}
	}
	renamed := map[types.UID]types.UID{}
	out := make(map[types.UID]*v1.Pod, len(u.Pods))
	for uid, pod := range u.Pods {
		e, ok := running[pods.FullName(pod)]
		if !ok || !r.continues(pod, e) {
			out[uid] = pod
			continue
		}
		same := *pod
		same.UID = e.Pod.UID
		out[same.UID], renamed[uid] = &same, same.UID
	}
	if len(renamed) == 0 {
		return u
	}
	u.Pods, u.Results = out, slices.Clone(u.Results)
	for i := range u.Results {
		if uid, ok := renamed[u.Results[i].UID]; ok {
			u.Results[i].UID = uid
		}
	}
	return u
}

// continues reports whether a static pod that is wanted under another UID is the running pod: both
// have the same hash, or the wanted pod is a resize of the running pod.
func (r *Reconciler) continues(pod *v1.Pod, known worker.Entry) bool {
	hash := pod.Annotations[pods.AnnotationHash]
	if hash == "" || pods.FromAPI(pod) {
		return false
	}
	return hash == known.Pod.Annotations[pods.AnnotationHash] || r.resizes(known, runtimeclass.Keep(pod, known.Pod))
}

// classed returns a pod of a manifest with the fields that its RuntimeClass sets. An admitted pod
// keeps the fields of the worker's version; another pod gets the fields that the class has now. If
// the class does not exist, or contradicts the pod, the pod stays as it is, and the pod's own sync
// reports that.
func (r *Reconciler) classed(pod *v1.Pod, known worker.Entry) *v1.Pod {
	name := runtimeclass.Name(pod)
	if name == "" {
		return pod
	}
	if known.Pod != nil && r.deps.Admitted(pod.UID) {
		return runtimeclass.Keep(pod, known.Pod)
	}
	class := r.deps.RuntimeClass(name)
	if class == nil {
		return pod
	}
	applied, err := runtimeclass.Apply(pod, class)
	if err != nil {
		return pod
	}
	return applied
}

// onlyClassed reports whether a pod that was not admitted yet differs from the worker's version
// only in the fields that the RuntimeClass set. Then both are the same pod.
func (r *Reconciler) onlyClassed(pod *v1.Pod, known worker.Entry) bool {
	return known.Phase == worker.Running && !r.deps.Admitted(pod.UID) &&
		equality.Semantic.DeepEqual(runtimeclass.Keep(pod, known.Pod).Spec, known.Pod.Spec)
}
