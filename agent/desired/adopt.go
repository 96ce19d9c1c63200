package desired

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/desired/drain"
	"github.com/berthd/berth/agent/pod/checkpoint"
	"github.com/berthd/berth/agent/pod/observe"
	"github.com/berthd/berth/agent/pod/steps"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/internal/retry"
)

// Engine goes on with pods of an earlier run; *pod.Engine implements it.
type Engine interface {
	// Began sets the time at which the takeover of pods began. Resume goes on with a pod from its
	// record.
	Began(at time.Time)
	Resume(uid types.UID, rec *checkpoint.Record)
}

// AdopterDeps are what an adopter works with.
type AdopterDeps struct {
	// RootDir is the agent's root directory, and Endpoint the runtime's address, for messages.
	// PodDir returns the path of a pod's directory.
	RootDir, Endpoint string
	PodDir            func(uid types.UID) string
	Engine            Engine
	Workers           *worker.Pool
	Checkpoint        *checkpoint.Store
	Observer          *observe.Observer
	State             *State
	Gate              *drain.Gate
	// Stopped returns the stop of a pod that an operator has stopped; nil for any other pod.
	Stopped func(pod *v1.Pod) *worker.Stop
	// Hold holds back all decisions about the node's room until the call of release.
	Hold func() (release func())
	// Stale is notified when the runtime has a pod that no worker knew.
	Stale notify.Signal
	// Orphaned is called for each pod that only the runtime knew.
	Orphaned func()
	Logger   *slog.Logger
}

// Adopter makes workers for pods that the agent did not make itself in this run. Make it with
// [NewAdopter].
type Adopter struct {
	deps AdopterDeps
	log  *slog.Logger
	// takingIn is held by the goroutine that makes a worker for a listed pod.
	takingIn chan struct{}

	mu sync.Mutex
	// unmanaged has the runtime's pods that belong to another root directory.
	unmanaged map[types.UID]bool
	// lastGood has, by manifest, the pods that the manifest had in an earlier run.
	lastGood map[string][]*v1.Pod
}

// NewAdopter returns an adopter.
func NewAdopter(deps AdopterDeps) *Adopter {
	return &Adopter{
		deps:      deps,
		log:       deps.Logger,
		takingIn:  make(chan struct{}, 1),
		unmanaged: map[types.UID]bool{},
		lastGood:  map[string][]*v1.Pod{},
	}
}

// LastGood returns the pods that a manifest last held, according to the records of an earlier run.
func (a *Adopter) LastGood(file string) []*v1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lastGood[file]
}

// Restore makes workers for the pods that an earlier run of the agent left, or a kubelet with the
// same root directory. First come the pods that the checkpoint knows, then the pods that only the
// runtime knows. Restore waits for the runtime to answer. No pod may ask for room before all pods
// of the checkpoint are known.
func (a *Adopter) Restore(ctx context.Context) error {
	records, err := a.deps.Checkpoint.Load()
	if err != nil {
		a.log.Warn("checkpoints that cannot be read are left aside", "err", err)
	}
	listed, err := a.firstList(ctx)
	if err != nil {
		return err
	}
	a.deps.Engine.Began(time.Now())
	release := a.deps.Hold()
	files := map[types.UID]origin{}
	for uid, rec := range records {
		if rec.File != "" {
			a.remember(rec)
			files[uid] = origin{file: rec.File}
		}
		if !a.deps.Gate.Held() && a.deps.Stopped(rec.Pod) == nil && revive(rec) {
			a.log.Info("pod that a shutdown or a drain ended is started again", "pod", pods.FullName(rec.Pod),
				"uid", uid)
		}
		a.deps.Engine.Resume(uid, rec)
	}
	release()
	a.deps.State.setFiles(files)
	found, unmanaged := 0, 0
	for uid, l := range listed {
		if _, known := records[uid]; known {
			continue
		}
		if a.adopt(uid, l) {
			found++
		} else {
			unmanaged++
		}
	}
	a.log.Info("pods of an earlier run taken over", "checkpointed", len(records), "found", found,
		"unmanaged", unmanaged)
	return nil
}

func (a *Adopter) remember(rec *checkpoint.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastGood[rec.File] = append(a.lastGood[rec.File], rec.Pod)
}

// listRetry is the back-off while the runtime does not answer at the start.
var listRetry = retry.Backoff{First: 50 * time.Millisecond, Most: time.Second}

// firstList lists the runtime's pods. It waits until the runtime answers.
func (a *Adopter) firstList(ctx context.Context) (map[types.UID]*observe.Listed, error) {
	for failures := 1; ; failures++ {
		listed, err := a.deps.Observer.Relist(ctx)
		if err == nil {
			return listed, nil
		}
		if ctx.Err() == nil && failures == 1 {
			a.log.Warn("the container runtime does not answer; waiting for it",
				"endpoint", a.deps.Endpoint, "unavailable", errdefs.IsUnavailable(err), "err", err)
		}
		if !listRetry.Wait(ctx, failures) {
			return nil, fmt.Errorf("waiting for the runtime: %w", context.Cause(ctx))
		}
	}
}

// Listed forgets the unmanaged pods that the runtime has no more.
func (a *Adopter) Listed(all map[types.UID]*observe.Listed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.unmanaged, func(uid types.UID, _ bool) bool { return all[uid] == nil })
}

// TakeIn makes a worker for a listed pod that had none, if the runtime still has something of the
// pod; else it forgets the pod. Two listings may take in the same pod at once. They do so one after
// the other: else one could act on what it saw before the other's worker came and went.
func (a *Adopter) TakeIn(ctx context.Context, uid types.UID, l *observe.Listed) {
	select {
	case a.takingIn <- struct{}{}:
		defer func() { <-a.takingIn }()
	case <-ctx.Done():
		return
	}
	switch {
	case a.deps.Workers.Has(uid):
		a.deps.Workers.Wake(uid)
	case l.Name != "" && a.remains(ctx, uid, l):
		a.adopt(uid, l)
		a.deps.Stale.Notify()
	default:
		a.deps.Observer.Forget(uid)
	}
}

// remains reports whether the runtime still has something of a pod without a worker. The pod and
// its worker may have gone since the listing. remains does not look at an unmanaged pod, because
// nobody adopts that pod.
func (a *Adopter) remains(ctx context.Context, uid types.UID, l *observe.Listed) bool {
	if !a.ours(uid, l.Annotations) {
		return true
	}
	has, err := a.deps.Observer.Pod(ctx, uid)
	return err == nil && (len(has.Sandboxes) > 0 || len(has.Containers) > 0)
}

// adopt makes a worker for a pod that only the runtime knows. It returns false for a pod that
// somebody else made on the same runtime, and leaves that pod alone; see [Adopter.ours]. The pod of
// a kubelet with our root directory has a directory beneath it.
func (a *Adopter) adopt(uid types.UID, l *observe.Listed) bool {
	if l.Name == "" {
		return false
	}
	if !a.ours(uid, l.Annotations) {
		a.warnUnmanaged(uid, l)
		return false
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		UID:         uid,
		Namespace:   l.Namespace,
		Name:        l.Name,
		Labels:      podLabels(l.Labels),
		Annotations: maps.Clone(l.Annotations),
	}}
	delete(pod.Annotations, steps.AnnotationRootDir)
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(l.GraceSeconds)
	a.deps.Orphaned()
	a.deps.Workers.Adopt(pod, worker.State{})
	return true
}

// warnUnmanaged warns of an unmanaged pod, once.
func (a *Adopter) warnUnmanaged(uid types.UID, l *observe.Listed) {
	a.mu.Lock()
	known := a.unmanaged[uid]
	a.unmanaged[uid] = true
	a.mu.Unlock()
	if !known {
		a.log.Warn("pod in the runtime is not of this root directory and is left alone",
			"pod", l.Namespace+"/"+l.Name, "uid", uid, "rootDir", a.deps.RootDir)
	}
}

// ours reports whether the pod belongs to our root directory. Every berth has its sandboxes name
// its root directory. A kubelet passes on what the pod says: whoever makes pods at the API server
// could hide them from us. No other pod has the UID of such a pod, so its directory beneath ours
// decides. Static pods of two agents may have the same UID, and only the node's owner annotates
// them. The annotation of the source is the agent's or the kubelet's, whatever the pod says.
func (a *Adopter) ours(uid types.UID, annotations map[string]string) bool {
	root := annotations[steps.AnnotationRootDir]
	if root == a.deps.RootDir {
		return true
	}
	if root != "" && annotations[pods.AnnotationSource] != pods.SourceAPI {
		return false
	}
	_, err := os.Stat(a.deps.PodDir(uid))
	return err == nil
}

// podLabels returns a sandbox's labels without those that name the pod.
func podLabels(labels map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		switch k {
		case cri.LabelPodName, cri.LabelPodNamespace, cri.LabelPodUID, cri.LabelContainerName:
		default:
			out[k] = v
		}
	}
	return out
}

// revive changes the record of a pod that a shutdown or a drain ended, or was ending when the agent
// itself ended: the pod is to run again. The record of a pod that has reached its final phase, or
// that nobody wants any more, stays as it is. revive reports whether the pod runs again.
func revive(rec *checkpoint.Record) bool {
	ended := rec.Status != nil && pods.Terminal(rec.Status.Phase)
	if !rec.Stop.ComesBack(rec.Pod) || !rec.UnwantedSince.IsZero() || ended {
		return false
	}
	rec.Stop, rec.Ended, rec.InitializedIn = nil, false, ""
	rec.PostStart, rec.Stops, rec.StartFailed, rec.KilledToRestart, rec.Backoff, rec.RestartAll = nil, nil, nil, nil,
		nil, nil
	rec.Probes, rec.Asked = nil, nil
	if rec.Status != nil {
		s := rec.Status.DeepCopy()
		s.Reason, s.Message = "", ""
		rec.Status = s
	}
	return true
}
