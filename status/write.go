package status

import (
	"bytes"
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/internal/retry"
)

// writeRetry is the back-off after a failed write.
var writeRetry = retry.Backoff{First: 200 * time.Millisecond, Most: 5 * time.Second}

// job is the work for one pod.
type job struct {
	change  Change
	confirm bool
	pod     *v1.Pod
	version uint64
}

// job returns the work for a pod, or false if there is none. The caller holds w.mu.
func (w *Writer) job(e *written) (job, bool) {
	entry, ok := w.store.Get(w.localUID(e.api))
	if !ok || entry.Stale { // another agent may have written something newer
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
	j.confirm = entry.Ended && e.api.DeletionTimestamp != nil && !e.confirmed && !pods.Mirror(e.api)
	return j, j.change.Patch != nil || j.confirm
}

// compare returns the change between the API server's status and the wanted one. Nobody modifies
// either of them in place.
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

// own is the node's part of a pod's status, to see whether a patch had an effect.
func own(pod *v1.Pod) []byte {
	change, err := Diff("", &v1.PodStatus{}, &pod.Status)
	if err != nil {
		return nil
	}
	return change.Patch
}

// write does the work for a pod: its status, then the confirmation of its deletion.
func (w *Writer) write(ctx context.Context, e *written) {
	w.mu.Lock()
	e.stale = false
	j, ok := w.job(e)
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

// done records the result of a write.
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
		if after != nil && w.deps.Written != nil && !e.behind.IsZero() {
			w.deps.Written(after, time.Since(e.behind))
		}
		if e.behind = (time.Time{}); e.stale { // it has changed meanwhile
			e.behind = e.since
		}
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		// the watch of the API server reports it
		log.Debug("pod is gone from the API server, or is another one now", "err", err)
		e.failures, e.notBefore = 0, time.Now().Add(writeRetry.Most)
		e.stain(time.Now())
	default:
		if e.failures == 0 {
			log.Warn("pod's status not written to the API server; it is tried again", "err", err)
		}
		e.failures++
		e.notBefore = time.Now().Add(writeRetry.Jittered(e.failures))
		e.stain(time.Now())
	}
}

func (j job) podName() string {
	if j.pod == nil {
		return ""
	}
	return pods.FullName(j.pod)
}
