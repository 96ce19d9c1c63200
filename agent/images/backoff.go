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
	tried    string // identifies the credentials that failed; see [ask]
}

// until is when the pod may try again.
func (b *backoff) until() time.Time { return b.failedAt.Add(b.delay) }

// message is what the container's waiting state says during the back-off.
func (b *backoff) message(image string) string {
	return fmt.Sprintf("Back-off pulling image %q: %s: %s", image, b.reason, b.text)
}

// failed lengthens the pod's back-off: it doubles up to the maximum, and begins anew after a time of twice the maximum without a failure. tried identifies the
// credentials that failed. The lock is held.
func (m *Manager) failed(a ask, tried string, now time.Time, failed failure) {
	b := m.backoffs[a.backoff()]
	switch {
	case b == nil || now.Sub(b.failedAt) > 2*m.cfg.BackoffMax:
		b = &backoff{delay: m.cfg.BackoffInitial}
		m.backoffs[a.backoff()] = b
	default:
		b.delay = min(2*b.delay, m.cfg.BackoffMax)
	}
	b.failedAt, b.tried = now, tried
	b.reason, b.text = failed.reasonOf(a.Image)
	m.watchNode()
}

// heldOff answers for a container whose pod holds off from the image; held is false where it need not, also because it has other credentials now than those
// that failed. The lock is held.
func (m *Manager) heldOff(a ask) (res Result, held bool) {
	b := m.backoffs[a.backoff()]
	now := time.Now()
	if b == nil || !now.Before(b.until()) {
		return Result{}, false
	}
	if b.tried != a.state {
		delete(m.backoffs, a.backoff())
		return Result{}, false
	}
	if p := m.pulls[a.pull()]; p != nil {
		return Result{}, false // another pod's pull is under way: nothing is gained by not waiting for it
	}
	if shown := b.failedAt.Add(failureShown); now.Before(shown) {
		return Result{Reason: b.reason, Message: b.text, RetryAt: earlier(shown, b.until())}, true
	}
	return Result{Reason: ReasonBackOff, Message: b.message(a.Image), RetryAt: b.until()}, true
}

// nodeCheck is how often the node's credentials are looked at while pods hold off from images: nothing tells when they change.
const nodeCheck = 5 * time.Second

// nodeWatch looks at the node's credentials while somebody holds off. It is guarded by the manager's lock.
type nodeWatch struct {
	timer *time.Timer // nil while nobody does
	state string      // of the credentials, at the last look
}

// watchNode has the node's credentials looked at as long as somebody holds off. The lock is held.
func (m *Manager) watchNode() {
	if m.node.timer == nil && m.run != nil {
		m.node = nodeWatch{timer: time.AfterFunc(nodeCheck, m.checkNode), state: m.deps.Node.State()}
	}
}

// checkNode wakes those who hold off where the node's credentials have changed.
func (m *Manager) checkNode() {
	state := m.deps.Node.State()
	m.mu.Lock()
	if m.node.timer == nil || len(m.backoffs) == 0 {
		m.node.timer = nil
		m.mu.Unlock()
		return
	}
	m.node.timer.Reset(nodeCheck)
	wake := wakes{}
	if state != m.node.state {
		m.node.state = state
		for key := range m.backoffs {
			wake.add(key.pod)
		}
	}
	m.mu.Unlock()
	wake.call(m.deps.Wake)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
