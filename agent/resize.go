package agent

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/berthd/berth/agent/admit"
	"github.com/berthd/berth/agent/resize"
	"github.com/berthd/berth/agent/runtimeclass"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/steps"
	"github.com/berthd/berth/agent/worker"
	"github.com/berthd/berth/status"
)

// deferredRetry is how often a resize is asked about again that there was no room for, should nobody have told of room.
const deferredRetry = time.Minute

// allocations are the pods that have other resources than their specs ask for.
type allocations struct {
	mu   sync.Mutex
	pods map[podUID]*v1.Pod
	// deferred are those that wait for room: to be resized, or to be admitted.
	deferred uidSet
}

// wait notes whether a pod waits for room.
func (l *allocations) wait(uid podUID, waits bool) {
	if waits {
		l.deferred.add(uid)
	} else {
		l.deferred.remove(uid)
	}
}

// of returns a pod with what it was allocated.
func (l *allocations) of(pod *v1.Pod) *v1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	if allocated := l.pods[pod.UID]; allocated != nil {
		return allocated
	}
	return pod
}

// set notes what a pod was allocated; nil says that it is what its spec asks for.
func (l *allocations) set(uid podUID, allocated *v1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if allocated == nil {
		delete(l.pods, uid)
		return
	}
	if l.pods == nil {
		l.pods = map[podUID]*v1.Pod{}
	}
	l.pods[uid] = allocated
}

// list returns the pods of the set.
func (s *uidSet) list() []podUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.uids))
}

// forgetResize drops what is kept of a pod that is gone, and lets those try that wait for room.
func (a *Agent) forgetResize(uid podUID) {
	a.allocations.set(uid, nil)
	a.allocations.deferred.remove(uid)
	a.roomLeft()
}

// roomLeft lets the pods try again that there was no room for.
func (a *Agent) roomLeft() {
	for _, uid := range a.allocations.deferred.list() {
		a.workers.Wake(uid)
	}
}

// beginResize takes notice of what is wanted of the pod: one that was admitted, and whose resources are others now, begins to be resized.
func beginResize(p *steps.Pass, before *v1.Pod) {
	rec := p.Record
	if rec.Resize == nil && rec.Admitted && before != nil && before != rec.Pod && !placeholder(before) && !placeholder(p.Pod) && !resize.Same(before, rec.Pod) {
		rec.Resize = resize.Begin(before, nil)
	}
}

// tellMissing tells the pod where a change of its resources needs a feature that the node does not declare, as a kubelet does; the change is made all the same, as far as
// it can be.
func (a *Agent) tellMissing(p *steps.Pass, before *v1.Pod) {
	rec := p.Record
	if before == nil || before == rec.Pod || placeholder(before) || placeholder(p.Pod) || len(before.Spec.InitContainers) != len(rec.Pod.Spec.InitContainers) || resize.Same(before, rec.Pod) {
		return
	}
	declared := a.node.Declared()
	if declared == nil {
		return
	}
	missing, err := declared.MissingForChange(before, rec.Pod)
	if err != nil {
		p.Log.Error("features that a change needs not found out", "err", err)
	}
	if len(missing) > 0 {
		a.events.Pod(p.Pod, "", v1.EventTypeWarning, "FailedNodeDeclaredFeaturesCheck", admit.Unavailable(missing))
	}
}

// withAllocated makes the pass be about the pod with what it was allocated; what is wanted is in the record.
func withAllocated(p *steps.Pass) {
	if p.Record.Resize != nil && !placeholder(p.Pod) {
		p.Pod = p.Record.Resize.Allocated.On(p.Pod)
	}
}

// allocate decides whether a pod may have what is wanted of it, and writes that down before anything is done about it.
func (a *Agent) allocate(p *steps.Pass) (retryAt time.Time, err error) {
	s := p.Record.Resize
	if s == nil {
		a.allocations.set(p.Pod.UID, nil)
		return time.Time{}, nil
	}
	s.Note(p.Pod, steps.Instances(&p.Observed))
	wanted := a.ephemerals.with(p.Record.Pod)
	if resize.Same(wanted, p.Pod) {
		if s.Pending = nil; !s.InProgress {
			p.Record.Resize = nil // what is wanted is what it has again
		}
	} else if retryAt, err = a.claim(p, wanted); err != nil {
		return retryAt, err
	}
	if s = p.Record.Resize; s != nil && s.InProgress {
		running := steps.Instances(&p.Observed)
		p.Limits = resize.Wide(s.Before(p.Pod, running), p.Pod)
	}
	if s == nil {
		a.allocations.set(p.Pod.UID, nil)
		return retryAt, nil
	}
	a.allocations.set(p.Pod.UID, p.Pod)
	return retryAt, nil
}

// claim allocates what is wanted if there is room, and else says why not.
func (a *Agent) claim(p *steps.Pass, wanted *v1.Pod) (retryAt time.Time, err error) {
	a.admission.Lock()
	defer a.admission.Unlock()
	s, uid := p.Record.Resize, p.Pod.UID
	stay, leave := a.admittedBeside(wanted)
	if pending := resize.Fit(wanted, p.Pod, slices.Concat(stay, leave), a.node.Allocatable()); pending != nil {
		if s.Pending == nil || s.Pending.Reason != pending.Reason || s.Pending.Message != pending.Message {
			a.events.Pod(p.Pod, "", v1.EventTypeWarning, "Resize"+pending.Reason, resize.Message("Pod resize "+pending.Reason, wanted, pending.Message))
		}
		s.Pending = pending
		if pending.Reason != v1.PodReasonDeferred {
			a.allocations.deferred.remove(uid)
			return time.Time{}, nil
		}
		a.allocations.deferred.add(uid)
		return time.Now().Add(deferredRetry), nil
	}
	next := *s
	next.Allocated, next.InProgress, next.Error, next.Pending = resize.Of(wanted), true, "", nil
	p.Record.Resize = &next
	if err := p.Save(); err != nil {
		p.Record.Resize = s
		return time.Time{}, fmt.Errorf("writing down what the pod was allocated: %w", err)
	}
	p.Pod = wanted
	a.allocations.set(uid, wanted)
	a.allocations.deferred.remove(uid)
	a.events.Pod(wanted, "", v1.EventTypeNormal, "ResizeStarted", resize.Message("Pod resize started", wanted, ""))
	a.roomLeft() // it may have given some up
	return time.Time{}, nil
}

// resizeStep is the rung that gives running containers new resources.
func (a *Agent) resizeStep() steps.Resize {
	step := steps.Resize{Runtime: a.deps.Runtime, Cgroups: a.deps.Cgroups, Events: a.events, Updated: a.observer.Stale, Done: a.resized}
	if c, ok := a.deps.Cgroups.(interface {
		MemoryUsage(pod *v1.Pod, containerID string) (int64, error)
	}); ok {
		step.Usage = c.MemoryUsage
	}
	return step
}

// resized is called after a resize was completed: the classes' weights are others now.
func (a *Agent) resized() { ring(a.desired.changed) }

// restartsFor returns the ids of the containers that have to be restarted to get their new resources.
func restartsFor(p *steps.Pass) map[string]bool {
	s := p.Record.Resize
	if s == nil || !s.InProgress {
		return nil
	}
	out := map[string]bool{}
	for _, u := range s.Updates(p.Pod, steps.Instances(&p.Observed)) {
		if u.Restart {
			out[u.ID] = true
		}
	}
	return out
}

// resizeStatus is what the pod's status says of its resize.
func resizeStatus(p *steps.Pass) *status.Resize {
	s := p.Record.Resize
	if s == nil {
		return nil
	}
	out := &status.Resize{InProgress: s.InProgress, Error: s.Error, Containers: s.Actuated, Pod: s.Before(p.Pod, steps.Instances(&p.Observed))}
	if s.Pending != nil {
		out.Pending = status.Reason{Reason: s.Pending.Reason, Message: s.Pending.Message}
	}
	return out
}

// resizes reports whether a pod that is wanted is one that runs, with other resources: it is resized rather than replaced.
func (a *Agent) resizes(known worker.Entry, pod *v1.Pod) bool {
	enabled := a.cfg.Berth.ResizeStaticPods == nil || *a.cfg.Berth.ResizeStaticPods
	return enabled && known.Phase == worker.Running && !known.Forget && !known.Waiting && !placeholder(known.Pod) && a.admitted.has(known.Pod.UID) &&
		!equality.Semantic.DeepEqual(known.Pod.Spec, pod.Spec) && source.Resizable(known.Pod, pod) == nil
}

// continued gives static pods whose manifests were edited the UIDs that they run or ended under, where the edit is a resize. The UID of a static pod is a hash over its
// manifest; the annotation kubernetes.io/config.hash has the newest, by which the pod is known again, also by the next agent.
func (a *Agent) continued(u source.Update) source.Update {
	running := map[string]worker.Entry{}
	for uid, e := range a.workers.List() {
		if _, wanted := u.Pods[uid]; !wanted && (e.Phase == worker.Running || finished(e)) && !e.Forget && !e.Waiting && !placeholder(e.Pod) {
			running[e.Pod.Namespace+"/"+e.Pod.Name] = e
		}
	}
	renamed := map[podUID]podUID{}
	pods := make(map[podUID]*v1.Pod, len(u.Pods))
	for uid, pod := range u.Pods {
		e, ok := running[pod.Namespace+"/"+pod.Name]
		hash := pod.Annotations[source.AnnotationHash]
		if !ok || hash == "" || sourceOf(pod) == source.NameAPI || hash != e.Pod.Annotations[source.AnnotationHash] && !a.resizes(e, runtimeclass.Keep(pod, e.Pod)) {
			pods[uid] = pod
			continue
		}
		same := *pod
		same.UID = e.Pod.UID
		pods[same.UID], renamed[uid] = &same, same.UID
	}
	if len(renamed) == 0 {
		return u
	}
	u.Pods = pods
	verdicts := make([]source.Verdict, len(u.Verdicts))
	copy(verdicts, u.Verdicts)
	for i := range verdicts {
		if uid, ok := renamed[verdicts[i].UID]; ok {
			verdicts[i].UID = uid
		}
	}
	u.Verdicts = verdicts
	return u
}
