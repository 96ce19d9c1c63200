package images

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// backoffKey is a pod and the full name of an image. Back-offs are kept for each pod, as a kubelet does: a new pod tries at once, which is
// what people do who have just put the registry right.
type backoffKey struct {
	pod  types.UID
	name string
}

// backoff is a pod's holding off from an image after failed pulls.
type backoff struct {
	delay    time.Duration
	failedAt time.Time
	reason   string // of the last failure
	text     string
}

// until is when the pod may try again.
func (b *backoff) until() time.Time { return b.failedAt.Add(b.delay) }

// message is what the container's waiting state says during the back-off.
func (b *backoff) message(image string) string {
	return fmt.Sprintf("Back-off pulling image %q: %s: %s", image, b.reason, b.text)
}

// failed lengthens the pod's back-off: it doubles up to the maximum, and begins anew after a time of twice the maximum without a failure. The
// lock is held.
func (m *Manager) failed(key backoffKey, now time.Time, reason, text string) {
	b := m.backoffs[key]
	switch {
	case b == nil || now.Sub(b.failedAt) > 2*m.cfg.BackoffMax:
		b = &backoff{delay: m.cfg.BackoffInitial}
		m.backoffs[key] = b
	default:
		b.delay = min(2*b.delay, m.cfg.BackoffMax)
	}
	b.failedAt, b.reason, b.text = now, reason, text
}

// heldOff answers for a container whose pod holds off from the image; held is false where it need not. The lock is held.
func (m *Manager) heldOff(req Request, name string) (res Result, held bool) {
	b := m.backoffs[backoffKey{req.Pod.UID, name}]
	now := time.Now()
	if b == nil || !now.Before(b.until()) {
		return Result{}, false
	}
	if p := m.pulls[name]; p != nil {
		return Result{}, false // another pod's pull is under way: nothing is gained by not waiting for it
	}
	if shown := b.failedAt.Add(failureShown); now.Before(shown) {
		return Result{Reason: b.reason, Message: b.text, RetryAt: earlier(shown, b.until())}, true
	}
	return Result{Reason: ReasonBackOff, Message: b.message(req.Image), RetryAt: b.until()}, true
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
