package agent

import (
	"context"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/client/api"
)

// beatPeriod is how often the main loop turns when nothing happens, to show that it can.
const beatPeriod = 5 * time.Second

// desired is what the sources want, and which of them have said so.
type desired struct {
	changed chan struct{} // for housekeeping
	// news says that the merged set is another one, strays that the runtime had pods of which no worker knew.
	news, strays chan struct{}

	// alike has, by pod, the version that its worker has and the one that is wanted which were last found to differ in nothing that matters: the main loop's own.
	alike map[podUID][2]*v1.Pod

	mu   sync.Mutex
	last source.Update
}

func newDesired() *desired {
	return &desired{changed: make(chan struct{}, 1), news: make(chan struct{}, 1), strays: make(chan struct{}, 1), alike: map[podUID][2]*v1.Pod{}}
}

// put has the main loop look at the merged set, which it takes from the mux then: an older one must never come after a newer one.
func (d *desired) put(source.Update) { ring(d.news) }

// ring leaves a ring in a bell, unless there is one.
func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// ready reports whether a source has reported once; the empty name stands for all of them.
func (d *desired) ready(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name != "" && d.last.Ready[name] {
		return true
	}
	return d.last.AllReady
}

// staticReady reports whether every source of static pods has reported once.
func (d *desired) staticReady() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, ready := range d.last.Ready {
		if name != source.NameAPI && !ready {
			return false
		}
	}
	return d.last.Ready != nil
}

// pod returns the pod as its source wants it; nil where none does.
func (d *desired) pod(uid podUID) *v1.Pod {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last.Pods[uid]
}

// wants reports whether a source wants the pod.
func (d *desired) wants(uid podUID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.last.Pods[uid]
	return ok
}

// reconcileDesired is the agent's main loop: it gives each merged set to the workers.
func (a *Agent) reconcileDesired(ctx context.Context) error {
	tick := time.NewTicker(beatPeriod)
	defer tick.Stop()
	for {
		now := time.Now()
		a.beat.Store(&now)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-a.desired.news:
			a.apply(a.mux.Current())
		case <-a.gate.again:
			a.apply(a.mux.Current())
		case <-a.desired.strays:
			a.disown()
		}
	}
}

// apply makes the workers want what the sources want.
func (a *Agent) apply(u source.Update) {
	u = a.continued(u)
	state, _, _ := a.gate.now()
	if state == api.Drained {
		u.Pods = a.finishedOf(u.Pods)
	}
	a.desired.mu.Lock()
	released := u.Ready[source.NameAPI] && !a.desired.last.Ready[source.NameAPI]
	a.desired.last = u
	a.desired.mu.Unlock()
	if released {
		defer a.releaseBound() // after those that are not wanted have been removed
	}
	a.judge(u.Verdicts)
	a.remember(u.Verdicts)
	if state == api.Draining {
		return // what is wanted counts again afterwards
	}
	known := a.workers.List()
	for uid, e := range known {
		if _, wanted := u.Pods[uid]; !wanted && (!e.Forget || e.Again) && a.desired.ready(sourceOf(e.Pod)) {
			a.log.Info("pod is not wanted any more", "pod", e.Pod.Namespace+"/"+e.Pod.Name, "uid", uid)
			a.workers.Remove(uid)
		}
	}
	for uid, pod := range u.Pods {
		e, ok := known[uid]
		pod := a.classed(pod, e)
		if sourceOf(pod) == source.NameAPI {
			a.wantBound(pod, e, ok)
			continue
		}
		if ok && !e.Forget && a.desired.compare(e.Pod, pod, same) {
			continue
		}
		if ok && !e.Forget && !placeholder(e.Pod) && !a.onlyClassed(pod, e) && !a.resizes(e, pod) && !equality.Semantic.DeepEqual(e.Pod.Spec, pod.Spec) {
			a.log.Info("static pod changed under its own uid: it is replaced", "pod", pod.Namespace+"/"+pod.Name, "uid", uid)
			a.workers.Remove(uid)
		} else if ok && !e.Forget {
			pod = seenFirst(pod, e.Pod)
		}
		a.workers.Set(pod)
	}
	maps.DeleteFunc(a.desired.alike, func(uid podUID, _ [2]*v1.Pod) bool { return u.Pods[uid] == nil })
	a.staticChanged()
	ring(a.desired.changed)
}

// disown removes the pods that were found in the runtime and that no source wants. It is the main loop's, as is all that is said of what is wanted: what comes to be
// wanted meanwhile must not be removed.
func (a *Agent) disown() {
	for uid, e := range a.workers.List() {
		if placeholder(e.Pod) && !e.Forget && !a.desired.wants(uid) && a.desired.ready(sourceOf(e.Pod)) {
			a.workers.Remove(uid)
		}
	}
}

// seenFirst returns a pod that is another version of one that has a worker, with the time at which that one was first seen.
func seenFirst(pod, known *v1.Pod) *v1.Pod {
	seen := known.Annotations[source.AnnotationSeen]
	if seen == "" || pod.Annotations[source.AnnotationSeen] == seen {
		return pod
	}
	out := *pod
	out.Annotations = maps.Clone(pod.Annotations)
	out.Annotations[source.AnnotationSeen] = seen
	return &out
}

// compare reports whether the version of a pod that its worker has and the one that is wanted are the same to a comparison. Of the two that were last found to be, it is
// not asked again: each news of one pod has all of them looked at.
func (d *desired) compare(had, wanted *v1.Pod, same func(x, y *v1.Pod) bool) bool {
	if d.alike[wanted.UID] == [2]*v1.Pod{had, wanted} {
		return true
	}
	if !same(had, wanted) {
		return false
	}
	d.alike[wanted.UID] = [2]*v1.Pod{had, wanted}
	return true
}

// same reports whether two versions of a pod differ in nothing that matters to its worker.
func same(x, y *v1.Pod) bool {
	return x == y || x.Namespace == y.Namespace && x.Name == y.Name && equality.Semantic.DeepEqual(x.Spec, y.Spec) &&
		equality.Semantic.DeepEqual(x.Labels, y.Labels) && equality.Semantic.DeepEqual(meaningful(x), meaningful(y))
}

// meaningful returns a pod's annotations without the time at which a source saw it.
func meaningful(pod *v1.Pod) map[string]string {
	out := make(map[string]string, len(pod.Annotations))
	for k, v := range pod.Annotations {
		if k != source.AnnotationSeen {
			out[k] = v
		}
	}
	return out
}

// sourceOf returns the name of the source that a pod came from, empty where it is not known.
func sourceOf(pod *v1.Pod) string { return pod.Annotations[source.AnnotationSource] }
