package status

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/pods"
)

const (
	// gather is how long changes that nobody waits for are collected before they are written.
	// Urgent changes are written at once.
	gather = 100 * time.Millisecond
	// apart is the least time between two writes for one pod that nobody waits for. The start of a
	// pod has more changes than a watcher needs.
	apart = 500 * time.Millisecond
	// parallelWrites is how many pods are written at the same time.
	parallelWrites = 8
)

// API is the part of the API server that the writer uses. Errors that the API server answered with
// are those of apimachinery's api/errors.
type API interface {
	// PatchStatus applies a strategic merge patch to a pod's status and returns the pod.
	PatchStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.Pod, error)
	// ConfirmDeletion deletes the pod with that UID at once.
	ConfirmDeletion(ctx context.Context, namespace, name string, uid types.UID) error
}

// WriterDeps are what a writer needs from others.
type WriterDeps struct {
	API API
	// LocalUID returns the UID on this node of the static pod that a mirror pod shows; empty if
	// this node has no such pod. Anybody who may create pods can name any UID in a mirror pod, so
	// the answer must depend on the pod's namespace and name, too. If LocalUID is nil, no mirror
	// pod is written.
	LocalUID func(mirror *v1.Pod) types.UID
	// Written, if set, is called after each status that the API server has accepted, with the pod
	// as it is there now, and the time for which the API server did not have the pod's status.
	Written func(pod *v1.Pod, behind time.Duration)
	Logger  *slog.Logger
}

// Writer writes each pod's status in the [Store] to the API server, and confirms deletions of pods
// of which nothing is left. It works by level: it writes every difference from the last known
// status at the API server, whatever happened before. Make it with [NewWriter].
//
// The caller reports the API server's pods through Replace, Set and Remove. A pod that the API
// server does not have is not written.
type Writer struct {
	store   *Store
	deps    WriterDeps
	changes notify.Signal

	mu sync.Mutex
	// pods has the API server's pods by the UID that the API server gave them. Which pod of this
	// node a mirror pod shows can change: localUID finds that out for each write.
	pods map[types.UID]*written
}

// written is what the writer knows about one pod.
type written struct {
	// api is the pod as the API server last sent it; for a static pod it is the mirror pod.
	api *v1.Pod
	// stale says that something may have to be written, and since says when that began.
	stale bool
	since time.Time
	// behind is since when the API server does not have the pod's status; zero if it has.
	behind time.Time
	busy   bool
	// failures counts failed writes in a row; notBefore is when the next write may be tried.
	failures  int
	notBefore time.Time
	// wrote is when the API server last accepted a write.
	wrote time.Time
	// sent is the last accepted patch, and taken is our part of the pod that it returned. The same
	// patch is not sent twice without effect.
	sent, taken []byte
	// confirmed says that the deletion was confirmed.
	confirmed bool
	// compared is the result of the last comparison. It stays valid until api or want changes.
	compared struct {
		api    *v1.Pod
		want   *v1.PodStatus
		change Change
	}
}

// NewWriter returns a writer of a store's statuses. It does nothing until Run.
func NewWriter(store *Store, deps WriterDeps) *Writer {
	return &Writer{store: store, deps: deps, changes: notify.New(), pods: map[types.UID]*written{}}
}

// Replace sets all pods of this node that the API server has.
func (w *Writer) Replace(all []*v1.Pod) {
	w.mu.Lock()
	old := w.pods
	w.pods = make(map[types.UID]*written, len(all))
	for _, pod := range all {
		e := old[pod.UID]
		if e == nil {
			e = &written{}
		}
		w.pods[pod.UID] = e
		e.failures, e.notBefore = 0, time.Time{} // the API server answers again
		e.take(pod)
	}
	w.mu.Unlock()
	w.changes.Notify()
}

// Set reports a pod as the API server has it. Set ignores a pod whose resourceVersion is older than
// the one the last patch returned.
func (w *Writer) Set(pod *v1.Pod) {
	w.mu.Lock()
	e := w.pods[pod.UID]
	if e == nil {
		e = &written{}
		w.pods[pod.UID] = e
	}
	if e.api == nil || !older(pod, e.api) {
		e.take(pod)
	}
	w.mu.Unlock()
	w.changes.Notify()
}

// Remove reports that the API server no longer has the pod.
func (w *Writer) Remove(pod *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, pod.UID)
}

// take records the API server's pod.
func (e *written) take(pod *v1.Pod) {
	e.api = pod
	if g := pod.DeletionGracePeriodSeconds; g == nil || *g > 0 {
		e.confirmed = false
	}
	e.stain(time.Now())
}

// stain records that something may have to be written.
func (e *written) stain(now time.Time) {
	if !e.stale {
		e.stale, e.since = true, now
	}
	if e.behind.IsZero() {
		e.behind = now
	}
}

// localUID is the UID on this node of a pod of the API server; empty for a mirror pod that shows no
// pod of this node.
func (w *Writer) localUID(pod *v1.Pod) types.UID {
	switch {
	case !pods.Mirror(pod):
		return pod.UID
	case w.deps.LocalUID != nil:
		return w.deps.LocalUID(pod)
	default:
		return ""
	}
}

// older reports whether a has an older resourceVersion than b. A resourceVersion that is not a
// number is never older.
func older(a, b *v1.Pod) bool {
	x, err1 := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, err2 := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return err1 == nil && err2 == nil && x < y
}

// Run writes until ctx ends, and joins the writes that it started.
func (w *Writer) Run(ctx context.Context) error {
	sub := w.store.Subscribe()
	defer sub.Close()
	var writes sync.WaitGroup
	defer writes.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sub.Changed():
			w.changed(sub.Take())
		case <-w.changes:
		case <-timer.C:
		}
		due, next := w.due(time.Now())
		for _, e := range due {
			writes.Go(func() {
				w.write(ctx, e)
				w.changes.Notify()
			})
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// UpToDate reports whether the API server has every current status.
func (w *Writer) UpToDate() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.pods {
		if _, todo := w.job(e); e.busy || todo {
			return false
		}
	}
	return true
}

// Flush writes everything once, without collecting changes, until ctx ends. Call it at the end,
// after Run has returned: the next write comes only from another agent.
func (w *Writer) Flush(ctx context.Context) {
	w.mu.Lock()
	var todo []*written
	for _, e := range w.pods {
		if _, ok := w.job(e); ok {
			todo = append(todo, e)
			e.busy = true
		}
	}
	w.mu.Unlock()
	slots := make(chan struct{}, parallelWrites)
	var writes sync.WaitGroup
	for _, e := range todo {
		slots <- struct{}{}
		writes.Go(func() {
			defer func() { <-slots }()
			w.write(ctx, e)
		})
	}
	writes.Wait()
}

// changed records which pods have a new status.
func (w *Writer) changed(uids []types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	static := false
	for _, uid := range uids {
		if e := w.pods[uid]; e != nil {
			e.stain(now)
		} else {
			static = true
		}
	}
	for _, e := range w.pods {
		if static && pods.Mirror(e.api) {
			e.stain(now) // it may show one of these pods
		}
	}
}

// due returns the pods to write now, and when the next pod is due. The returned pods count as being
// written from now on.
func (w *Writer) due(now time.Time) (due []*written, next time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	busy := 0
	for _, e := range w.pods {
		if e.busy {
			busy++
		}
	}
	for _, e := range w.pods {
		if !e.stale || e.busy {
			continue
		}
		job, ok := w.job(e)
		if !ok {
			e.stale, e.behind = false, time.Time{}
			continue
		}
		at := e.notBefore
		if !job.change.Urgent && !job.confirm {
			at = latest(at, e.since.Add(gather), e.wrote.Add(apart))
		}
		switch {
		case at.After(now):
			if next.IsZero() || at.Before(next) {
				next = at
			}
		case busy < parallelWrites:
			busy++
			e.busy = true
			due = append(due, e)
		}
	}
	return due, next
}

func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}
