package status

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// settle is how long changes that nobody waits for are gathered before they are written (FEATURES 2.2: immediate, coalesced within 100 ms).
	settle = 100 * time.Millisecond
	// apart is the least time between two writes about one pod that nobody waits for: a start has more news than a watcher needs.
	apart = 500 * time.Millisecond
	// writeRetryFirst and writeRetryMost bound the back-off after a write that failed.
	writeRetryFirst = 200 * time.Millisecond
	writeRetryMost  = 5 * time.Second
	// parallelWrites is how many pods are written at once.
	parallelWrites = 8
)

// API is what the writer asks of the API server. Errors are those of apimachinery's api/errors, as far as the API server answered.
type API interface {
	// PatchStatus applies a strategic merge patch to a pod's status and returns the pod.
	PatchStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.Pod, error)
	// ConfirmDeletion deletes the pod with that UID at once.
	ConfirmDeletion(ctx context.Context, namespace, name string, uid types.UID) error
}

// WriterDeps are what a writer needs.
type WriterDeps struct {
	API API
	// LocalUID, where it is set, returns the UID under which the static pod runs here that a mirror pod shows; else it is the one that the mirror names.
	LocalUID func(mirror *v1.Pod) types.UID
	Logger   *slog.Logger
}

// Writer makes the API server say of each pod what the [Store] says, and confirms deletions of pods of which nothing is left. It works by level: what differs from what the
// API server said last is written, whatever happened in between. Make it with [NewWriter].
//
// It must be told what the API server has, through Replace, Set and Remove. A pod that the API server does not have is not written.
type Writer struct {
	store *Store
	deps  WriterDeps
	bell  chan struct{}

	mu   sync.Mutex
	pods map[types.UID]*written
}

// written is what the writer knows of one pod.
type written struct {
	// api is the pod as the API server said last: for a static pod, its mirror.
	api *v1.Pod
	// stale says that something may have to be written; since is when that began.
	stale bool
	since time.Time
	busy  bool
	// failures counts failed writes in a row; not before is when the next one may be tried.
	failures  int
	notBefore time.Time
	// wrote is when the last write was accepted.
	wrote time.Time
	// sent is the last patch that was accepted, and taken the own part of what came of it: the same patch is not sent again for nothing.
	sent, taken []byte
	// confirmed says that the deletion was confirmed.
	confirmed bool
	// compared is what a comparison found: it is the same until one of the two is another.
	compared struct {
		api    *v1.Pod
		want   *v1.PodStatus
		change Change
	}
}

// NewWriter returns a writer of a store's statuses; it does nothing until Run.
func NewWriter(store *Store, deps WriterDeps) *Writer {
	return &Writer{store: store, deps: deps, bell: make(chan struct{}, 1), pods: map[types.UID]*written{}}
}

// Replace says which pods of this node the API server has, however they were before.
func (w *Writer) Replace(pods []*v1.Pod) {
	w.mu.Lock()
	old := w.pods
	w.pods = make(map[types.UID]*written, len(pods))
	for _, pod := range pods {
		uid := w.localUID(pod)
		e := old[uid]
		if e == nil || e.api.UID != pod.UID {
			e = &written{}
		}
		w.pods[uid] = e
		e.failures, e.notBefore = 0, time.Time{} // it answers again
		e.take(pod)
	}
	w.mu.Unlock()
	w.ring()
}

// Set says that the API server has the pod so. What is older than what a write returned is nothing.
func (w *Writer) Set(pod *v1.Pod) {
	uid := w.localUID(pod)
	w.mu.Lock()
	e := w.pods[uid]
	if e == nil || e.api.UID != pod.UID {
		e = &written{}
		w.pods[uid] = e
	}
	if e.api == nil || !older(pod, e.api) {
		e.take(pod)
	}
	w.mu.Unlock()
	w.ring()
}

// Remove says that the API server has the pod no more.
func (w *Writer) Remove(pod *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, e := range w.pods {
		if e.api.UID == pod.UID {
			delete(w.pods, uid)
		}
	}
}

// take notes what the API server has.
func (e *written) take(pod *v1.Pod) {
	e.api = pod
	if g := pod.DeletionGracePeriodSeconds; g == nil || *g > 0 {
		e.confirmed = false
	}
	e.stain(time.Now())
}

// stain notes that something may have to be written.
func (e *written) stain(now time.Time) {
	if !e.stale {
		e.stale, e.since = true, now
	}
}

// localUID is the UID under which a pod of the API server runs here.
func (w *Writer) localUID(pod *v1.Pod) types.UID {
	uid, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]
	switch {
	case !mirror:
		return pod.UID
	case w.deps.LocalUID != nil:
		return w.deps.LocalUID(pod)
	default:
		return types.UID(uid)
	}
}

// isMirror reports whether a pod of the API server only shows a static one.
func isMirror(pod *v1.Pod) bool {
	_, ok := pod.Annotations[v1.MirrorPodAnnotationKey]
	return ok
}

// older reports whether a is from before b; revisions that are no numbers are never older.
func older(a, b *v1.Pod) bool {
	x, err1 := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, err2 := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return err1 == nil && err2 == nil && x < y
}

func (w *Writer) ring() {
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

// Run writes until ctx ends, and joins what it began.
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
		case <-w.bell:
		case <-timer.C:
		}
		due, next := w.due(time.Now())
		for uid, e := range due {
			writes.Go(func() {
				w.write(ctx, uid, e)
				w.ring()
			})
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// Settled reports whether the API server has been told of every status that there is now.
func (w *Writer) Settled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, e := range w.pods {
		if _, todo := w.job(uid, e); e.busy || todo {
			return false
		}
	}
	return true
}

// Flush writes once what there is to write, without gathering it, until ctx ends. It is for the end, after Run has returned: nobody looks again before another
// agent runs.
func (w *Writer) Flush(ctx context.Context) {
	w.mu.Lock()
	todo := map[types.UID]*written{}
	for uid, e := range w.pods {
		if _, ok := w.job(uid, e); ok {
			todo[uid] = e
			e.busy = true
		}
	}
	w.mu.Unlock()
	slots := make(chan struct{}, parallelWrites)
	var writes sync.WaitGroup
	for uid, e := range todo {
		slots <- struct{}{}
		writes.Go(func() {
			defer func() { <-slots }()
			w.write(ctx, uid, e)
		})
	}
	writes.Wait()
}

// changed notes which pods' statuses are others now.
func (w *Writer) changed(uids []types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, uid := range uids {
		if e := w.pods[uid]; e != nil {
			e.stain(now)
		}
	}
}

// due returns the pods to write now, which count as being written from here on, and when the next one is.
func (w *Writer) due(now time.Time) (due map[types.UID]*written, next time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due = map[types.UID]*written{}
	busy := 0
	for _, e := range w.pods {
		if e.busy {
			busy++
		}
	}
	for uid, e := range w.pods {
		if !e.stale || e.busy {
			continue
		}
		job, ok := w.job(uid, e)
		if !ok {
			e.stale = false
			continue
		}
		at := e.notBefore
		if !job.change.Urgent && !job.confirm {
			at = latest(at, e.since.Add(settle), e.wrote.Add(apart))
		}
		switch {
		case at.After(now):
			if next.IsZero() || at.Before(next) {
				next = at
			}
		case busy < parallelWrites:
			busy++
			e.busy = true
			due[uid] = e
		}
	}
	return due, next
}

func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}

// job is what there is to do for one pod.
type job struct {
	change  Change
	confirm bool
	pod     *v1.Pod
	version uint64
}

// job returns what there is to do for a pod; false where there is nothing. w.mu is held.
func (w *Writer) job(uid types.UID, e *written) (job, bool) {
	entry, ok := w.store.Get(uid)
	if !ok || entry.Stale { // another agent may have told something newer
		return job{}, false
	}
	j := job{pod: e.api, version: entry.Version}
	change, err := e.compare(entry.Status)
	if err != nil {
		w.deps.Logger.Error("a pod's status cannot be written", "pod", e.api.Namespace+"/"+e.api.Name, "err", err)
		return job{}, false
	}
	if !bytes.Equal(change.Patch, e.sent) || !bytes.Equal(own(e.api), e.taken) {
		j.change = change
	}
	j.confirm = entry.Ended && e.api.DeletionTimestamp != nil && !e.confirmed && !isMirror(e.api)
	return j, j.change.Patch != nil || j.confirm
}

// compare returns what has to be written for the API server to say that of the pod. Neither what it says nor what is wanted is ever modified in its place.
func (e *written) compare(want *v1.PodStatus) (Change, error) {
	if c := &e.compared; c.api == e.api && c.want == want {
		return c.change, nil
	}
	change, err := Diff(e.api.UID, &e.api.Status, want)
	if err == nil {
		e.compared.api, e.compared.want, e.compared.change = e.api, want, change
	}
	return change, err
}

// own is the part of a status that a patch was to change, to see whether it did.
func own(pod *v1.Pod) []byte {
	change, err := Diff("", &v1.PodStatus{}, &pod.Status)
	if err != nil {
		return nil
	}
	return change.Patch
}

// write does what there is to do for a pod: its status, then the confirmation that it may go.
func (w *Writer) write(ctx context.Context, uid types.UID, e *written) {
	w.mu.Lock()
	e.stale = false
	j, ok := w.job(uid, e)
	w.mu.Unlock()
	var err error
	var after *v1.Pod
	if ok && j.change.Patch != nil {
		after, err = w.deps.API.PatchStatus(ctx, j.pod.Namespace, j.pod.Name, j.change.Patch)
	}
	confirmed := false
	if ok && err == nil && j.confirm {
		if err = w.deps.API.ConfirmDeletion(ctx, j.pod.Namespace, j.pod.Name, j.pod.UID); err == nil {
			confirmed = true
		}
	}
	w.done(ctx, e, j, after, confirmed, err)
}

// done notes how a write went.
func (w *Writer) done(ctx context.Context, e *written, j job, after *v1.Pod, confirmed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.busy = false
	e.confirmed = e.confirmed || confirmed
	if after != nil && after.UID == e.api.UID {
		if !older(after, e.api) {
			e.api = after
		}
		e.sent, e.taken, e.wrote = j.change.Patch, own(after), time.Now()
	}
	log := w.deps.Logger.With("pod", j.podName(), "version", j.version)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		if e.failures > 0 {
			log.Info("pod's status is written to the API server again")
		}
		e.failures, e.notBefore = 0, time.Time{}
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		log.Debug("pod is gone from the API server, or is another one now", "err", err) // whoever follows the API server says so
		e.failures, e.notBefore = 0, time.Now().Add(writeRetryMost)
		e.stain(time.Now())
	default:
		if e.failures == 0 {
			log.Warn("pod's status not written to the API server; it is tried again", "err", err)
		}
		e.failures++
		d := writeRetryMost
		if shift := e.failures - 1; shift < 8 {
			d = min(d, writeRetryFirst<<shift)
		}
		e.notBefore = time.Now().Add(d - rand.N(d/5+1))
		e.stain(time.Now())
	}
}

func (j job) podName() string {
	if j.pod == nil {
		return ""
	}
	return j.pod.Namespace + "/" + j.pod.Name
}
