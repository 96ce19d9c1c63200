package desired

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/status"
)

// wantFromAPI gives the worker of a pod of the API server the version of the pod that is wanted
// now. The API server restricts the changes of a pod's spec, so the pod is never replaced. The pod
// ends when it is deleted, or when its phase there is final. A pod of which nothing ever ran here
// is treated like a pod that ends, so that its end is reported.
func (r *Reconciler) wantFromAPI(pod *v1.Pod, e worker.Entry, known bool) {
	workers := r.deps.Workers
	switch {
	// the pod does not have to wait for its predecessor any more
	case known && e.Waiting && ends(pod) && workers.Withdraw(pod.UID),
		!known && ends(pod):
		workers.Adopt(pod, worker.State{Phase: worker.Terminating})
		return
	case !known || e.Unwanted || !r.compare(e.Pod, pod, sameFromAPI):
		workers.Set(pod)
	}
	if ends(pod) {
		workers.Stop(pod.UID, worker.Stop{Grace: pod.DeletionGracePeriodSeconds})
	}
}

// ends reports whether a pod of the API server is to end: it was deleted there, or its phase is
// final.
func ends(pod *v1.Pod) bool { return pod.DeletionTimestamp != nil || pods.Terminal(pod.Status.Phase) }

// sameFromAPI reports whether two versions of a pod of the API server are the same in everything
// that matters to its worker. Of the status that is what others than the node report: the end of
// the pod, its resource claims, and conditions.
func sameFromAPI(x, y *v1.Pod) bool {
	return same(x, y) && x.Generation == y.Generation && x.DeletionTimestamp.Equal(y.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(x.DeletionGracePeriodSeconds, y.DeletionGracePeriodSeconds) &&
		pods.Terminal(x.Status.Phase) == pods.Terminal(y.Status.Phase) &&
		equality.Semantic.DeepEqual(x.Status.ResourceClaimStatuses, y.Status.ResourceClaimStatuses) &&
		equality.Semantic.DeepEqual(x.Status.ExtendedResourceClaimStatus, y.Status.ExtendedResourceClaimStatus) &&
		equality.Semantic.DeepEqual(status.UnmanagedConditions(x), status.UnmanagedConditions(y))
}
