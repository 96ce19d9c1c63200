package pod

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/node/room"
	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/status"
)

// Pods returns every pod of the node with its status, by namespace and name. A pod that nobody
// wants any more has a deletion time as soon as this fact is on record. Such a pod comes after its
// successor of the same name. A static pod comes before a pod of the API server with its name, so
// that commands on the node mean the static pod, whoever took its name. The caller owns the pods,
// but must not modify the data that the pods point to.
func (e *Engine) Pods() []*v1.Pod {
	entries := e.deps.Workers.List()
	out := make([]*v1.Pod, 0, len(entries))
	for uid, entry := range entries {
		if pods.RuntimeOnly(entry.Pod) && entry.Phase == worker.Running {
			continue // found in the runtime; its source has not claimed it yet
		}
		pod := *e.ephemerals.with(entry.Pod)
		switch s, ok := e.deps.Status.Get(uid); {
		case ok:
			pod.Status = *s.Status
		case !entry.Waiting && e.ended(uid):
			continue // the pod's records were removed
		default: // the pod's first sync has not reported yet, even if the pod is to end already
			pod.Status = v1.PodStatus{Phase: v1.PodPending}
		}
		if entry.Recorded && pod.DeletionTimestamp == nil {
			at := metav1.NewTime(entry.UnwantedSince.Truncate(time.Second))
			pod.DeletionTimestamp = &at
		}
		out = append(out, &pod)
	}
	slices.SortFunc(out, inOrder)
	return out
}

// inOrder compares two pods for the order of [Engine.Pods].
func inOrder(x, y *v1.Pod) int {
	return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name),
		pods.TrueFirst(pods.Static(x), pods.Static(y)),
		pods.TrueFirst(y.DeletionTimestamp != nil, x.DeletionTimestamp != nil),
		strings.Compare(string(x.UID), string(y.UID)))
}

// ended reports whether the pod's worker has ended the pod or is gone. Records are removed only
// after that. The answer must be newer than what was found of the records.
func (e *Engine) ended(uid types.UID) bool {
	entry, ok := e.deps.Workers.Get(uid)
	return !ok || entry.Phase == worker.Terminated
}

// WatchPods returns a channel that receives after any pod's status has changed, and a function that
// ends the watch.
func (e *Engine) WatchPods() (changed <-chan struct{}, stop func()) {
	sub := e.deps.Status.Subscribe()
	signal := notify.New()
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-sub.Changed():
			}
			sub.Take()
			signal.Notify()
		}
	}()
	return signal, func() {
		close(end)
		<-ended
		sub.Close()
	}
}

// Timeline returns the finished steps of a pod's worker, and the step under way; false for a pod
// that has no worker.
func (e *Engine) Timeline(uid types.UID) (timeline.Timeline, bool) {
	entry, ok := e.deps.Workers.List()[uid]
	if !ok {
		return timeline.Timeline{}, false
	}
	out := timeline.Timeline{
		Phase:     entry.Phase.String(),
		Successor: entry.Waiting,
		RetryAt:   entry.RetryAt,
		Entries:   e.deps.Records.Timeline.Get(uid),
	}
	if stop := entry.Stop; stop != nil && stop.Reason != "" && entry.Phase == worker.Terminating {
		out.Ends = stop.Reason + ": " + stop.Message
	}
	if begun := e.deps.Records.Timeline.UnderWay(uid); begun.Step != "" {
		out.UnderWay, out.UnderWayFor = begun.Step, time.Since(begun.Since)
	}
	for _, step := range e.pipeline.steps {
		out.Steps = append(out.Steps, step.Name())
	}
	return out, true
}

// Live returns the pods that have not ended, with what they were allocated.
func (e *Engine) Live() []*v1.Pod {
	var out []*v1.Pod
	for uid, entry := range e.deps.Workers.List() {
		s, ok := e.deps.Status.Get(uid)
		if ok && pods.Terminal(s.Status.Phase) || entry.Waiting || pods.RuntimeOnly(entry.Pod) {
			continue
		}
		out = append(out, e.deps.Node.Room.Allocated(entry.Pod))
	}
	return out
}

// Listed returns the pods that have a worker or wait for one, also those that have ended: all but
// those of which only the runtime knows.
func Listed(workers *worker.Pool) []*v1.Pod {
	var out []*v1.Pod
	for _, entry := range workers.List() {
		if !pods.RuntimeOnly(entry.Pod) {
			out = append(out, entry.Pod)
		}
	}
	return out
}

// Kill cuts the grace of every pod short: containers that still run are killed after the least time
// that containers get.
func (e *Engine) Kill() {
	least := int64(2) // seconds, as in steps.Stopper
	for uid := range e.deps.Workers.List() {
		e.deps.Workers.Stop(uid, worker.Stop{Grace: &least})
	}
}

// Occupants returns the pods that room must know: the pods that have not ended and do not wait for
// a predecessor.
func Occupants(workers *worker.Pool, statuses *status.Store) []room.Occupant {
	var out []room.Occupant
	for uid, entry := range workers.List() {
		if entry.Waiting || entry.Phase == worker.Terminated || pods.RuntimeOnly(entry.Pod) {
			continue
		}
		if s, ok := statuses.Get(uid); ok && pods.Terminal(s.Status.Phase) {
			continue
		}
		out = append(out, room.Occupant{Pod: entry.Pod, Terminating: entry.Phase != worker.Running})
	}
	return out
}
