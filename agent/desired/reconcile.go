package desired

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/desired/drain"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/pods"
)

// beatPeriod is the time between two turns of the main loop when nothing happens. The turns show
// that the loop is alive.
const beatPeriod = 5 * time.Second

// Config has a reconciler's settings.
type Config struct {
	// ResizeStatic makes the reconciler resize a static pod, instead of replacing it, if only cpu
	// and memory change in its manifest.
	ResizeStatic bool
}

// Deps are what a reconciler works with.
type Deps struct {
	// Current returns the pods that the sources want now. News says that this set has changed.
	Current func() source.Update
	News    notify.Signal
	// Stale says that the runtime has pods that no worker knew. These pods may have to be removed.
	Stale   notify.Signal
	State   *State
	Workers *worker.Pool
	Gate    *drain.Gate
	// Admitted reports whether a pod was admitted.
	Admitted func(uid types.UID) bool
	// RuntimeClass returns a local RuntimeClass, nil if there is none.
	RuntimeClass func(name string) *nodev1.RuntimeClass
	// Changed is called after the workers got another set of pods.
	Changed func()
	// Event records an event about the node, and PodEvent one about a pod. Refused receives the
	// number of refused manifests.
	Event    func(kind, reason, message string)
	PodEvent func(pod *v1.Pod, container, kind, reason, message string)
	Refused  func(n int)
	Logger   *slog.Logger
}

// Reconciler is the agent's main loop: it gives what is wanted to the workers. Make it with [New].
type Reconciler struct {
	cfg  Config
	deps Deps
	log  *slog.Logger
	// beat is when the loop last turned.
	beat atomic.Pointer[time.Time]

	// Only the loop uses the fields below.

	// alike has, by pod, two versions of the pod: the worker's version and the wanted version. The
	// last comparison found no difference that matters between the two.
	alike map[types.UID][2]*v1.Pod
	// reported has the warnings and refusals of manifests that were reported already.
	reported map[resultKey]bool
}

// New returns a reconciler; it does nothing before [Reconciler.Run].
func New(cfg Config, deps Deps) *Reconciler {
	return &Reconciler{cfg: cfg, deps: deps, log: deps.Logger, alike: map[types.UID][2]*v1.Pod{}}
}

// Run gives each merged set to the workers until ctx ends. Run takes the set only when it applies
// it: an older set must never come after a newer set.
func (r *Reconciler) Run(ctx context.Context) error {
	tick := time.NewTicker(beatPeriod)
	defer tick.Stop()
	for {
		now := time.Now()
		r.beat.Store(&now)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-r.deps.News:
			r.apply(r.deps.Current())
		case <-r.deps.Gate.Changed():
			r.apply(r.deps.Current())
		case <-r.deps.Stale:
			r.disown()
		}
	}
}

// Healthy returns an error if the loop has not turned for longer than limit. A loop that was not
// started is healthy: the agent waits for its runtime, and a restart of the agent would not help.
func (r *Reconciler) Healthy(limit time.Duration) error {
	beat := r.beat.Load()
	if beat == nil {
		return nil
	}
	if late := time.Since(*beat); late > limit { // by the monotonic clock: the wall clock may jump
		return fmt.Errorf("the sync loop has not turned for %s", late.Round(time.Second))
	}
	return nil
}

// apply makes the workers want what the sources want.
func (r *Reconciler) apply(u source.Update) {
	u = r.continued(u)
	state := r.deps.Gate.State()
	known := r.deps.Workers.List()
	returned := r.rememberFiles(u.Results)
	if state == drain.Drained {
		u.Pods = r.keptOf(u.Pods, known, returned)
	}
	if r.deps.State.set(u) {
		defer r.wakeAll() // after the removal of unwanted pods
	}
	r.reportResults(u.Results)
	if state == drain.Draining {
		if r.deps.Gate.ShuttingDown() {
			r.refuse(u)
		}
		return // the wanted pods count again after the drain
	}
	known = r.deps.Workers.List()
	for uid, e := range known {
		if _, wanted := u.Pods[uid]; !wanted && (!e.Unwanted || e.Again) && r.deps.State.Ready(pods.Source(e.Pod)) {
			r.log.Info("pod is not wanted any more", "pod", pods.FullName(e.Pod), "uid", uid)
			r.deps.Workers.Remove(uid)
		}
	}
	for uid, pod := range u.Pods {
		e, ok := known[uid]
		if ok && returned[uid] && !r.changed(pod, e) {
			r.log.Info("the pod's manifest was deleted and is there again: the pod starts anew", "pod", pods.FullName(pod),
				"uid", uid)
			r.deps.Workers.Remove(uid)
			e.Unwanted = true
		}
		if pods.FromAPI(pod) {
			r.wantFromAPI(pod, e, ok)
		} else {
			if before := predecessor(pod, known); !ok && before != nil {
				r.reportChange(before, pod)
			}
			r.wantStatic(r.classed(pod, e), e, ok)
		}
	}
	maps.DeleteFunc(r.alike, func(uid types.UID, _ [2]*v1.Pod) bool { return u.Pods[uid] == nil })
	r.deps.Changed()
}

// refuse gives the workers the pods of the API server while the machine shuts down. A new pod is
// refused by admission, so that the cluster runs it elsewhere.
func (r *Reconciler) refuse(u source.Update) {
	known := r.deps.Workers.List()
	for uid, pod := range u.Pods {
		if pods.FromAPI(pod) {
			e, ok := known[uid]
			r.wantFromAPI(pod, e, ok)
		}
	}
}

// wakeAll wakes all pods after the first read of the API server. The API server's own pods may wait
// for that read, and so may any pod that another agent left running.
func (r *Reconciler) wakeAll() {
	for uid := range r.deps.Workers.List() {
		r.deps.Workers.Wake(uid)
	}
}

// disown removes the pods that were found in the runtime and that no source wants. The main loop
// calls disown, because a pod that becomes wanted meanwhile must not be removed.
func (r *Reconciler) disown() {
	for uid, e := range r.deps.Workers.List() {
		if pods.RuntimeOnly(e.Pod) && !e.Unwanted && !r.deps.State.Wants(uid) && r.deps.State.Ready(pods.Source(e.Pod)) {
			r.deps.Workers.Remove(uid)
		}
	}
}

// keptOf returns the wanted pods that have ended here in the version that is wanted now, and the
// pods of the API server that are to end. The API server waits for the confirmation that nothing is
// left of a deleted pod, even if the pod has never run. A pod whose manifest was deleted and is
// there again would start anew.
func (r *Reconciler) keptOf(wanted map[types.UID]*v1.Pod, known map[types.UID]worker.Entry,
	returned map[types.UID]bool,
) map[types.UID]*v1.Pod {
	out := map[types.UID]*v1.Pod{}
	for uid, pod := range wanted {
		e, ok := known[uid]
		if ok && drain.Kept(e) && !r.changed(pod, e) && !returned[uid] || pods.FromAPI(pod) && ends(pod) {
			out[uid] = pod
		}
	}
	return out
}

// changed reports whether a static pod has another spec than its worker's version.
func (r *Reconciler) changed(pod *v1.Pod, e worker.Entry) bool {
	return !pods.FromAPI(pod) && e.Pod != pod && !equality.Semantic.DeepEqual(e.Pod.Spec, r.classed(pod, e).Spec)
}

// compare reports whether the worker's version of a pod and the wanted version are the same by the
// function same. Two versions that were the same last time are not compared again, because a change
// of one pod makes the loop look at all pods.
func (r *Reconciler) compare(had, wanted *v1.Pod, same func(x, y *v1.Pod) bool) bool {
	if r.alike[wanted.UID] == [2]*v1.Pod{had, wanted} {
		return true
	}
	if !same(had, wanted) {
		return false
	}
	r.alike[wanted.UID] = [2]*v1.Pod{had, wanted}
	return true
}

// same reports whether two versions of a pod are the same in everything that matters to the pod's
// worker.
func same(x, y *v1.Pod) bool {
	return x == y || x.Namespace == y.Namespace && x.Name == y.Name && equality.Semantic.DeepEqual(x.Spec, y.Spec) &&
		equality.Semantic.DeepEqual(x.Labels, y.Labels) && equality.Semantic.DeepEqual(meaningful(x), meaningful(y))
}

// meaningful returns a pod's annotations without the time at which a source saw it.
func meaningful(pod *v1.Pod) map[string]string {
	out := make(map[string]string, len(pod.Annotations))
	for k, v := range pod.Annotations {
		if k != pods.AnnotationSeen {
			out[k] = v
		}
	}
	return out
}
