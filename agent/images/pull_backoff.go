package images

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/retry"
)

// backoffKey is a pod and the full name of an image. Each pod has back-offs of its own, as in the
// kubelet: a new pod tries at once, because people create one after they have repaired the
// registry.
type backoffKey struct {
	pod  types.UID
	name string
}

// backoff is a pod's wait after failed pulls of an image (ImagePullBackOff).
type backoff struct {
	failures int // in a row
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

// failed lengthens the pod's back-off. The delay doubles up to the maximum; after twice the maximum
// without a failure it begins again with the initial delay. tried identifies the credentials that
// failed. The lock is held.
func (m *Manager) failed(a ask, tried string, now time.Time, failed failure) {
	b := m.backoffs[a.backoff()]
	if b == nil || now.Sub(b.failedAt) > 2*m.cfg.BackoffMax {
		b = &backoff{}
		m.backoffs[a.backoff()] = b
	}
	b.failures++
	b.delay = retry.Backoff{First: m.cfg.BackoffInitial, Most: m.cfg.BackoffMax}.Delay(b.failures)
	b.failedAt, b.tried = now, tried
	b.reason, b.text = failed.reasonOf(a.Image)
	m.watchNode()
}

// backingOff returns the result for a container whose pod is in back-off for the image. waits is
// false if it is not, or if the pod has other credentials now than those that failed. The lock is
// held.
func (m *Manager) backingOff(a ask) (res Result, waits bool) {
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
		// another pod's pull is under way, and this pod may as well wait for it
		return Result{}, false
	}
	if shown := b.failedAt.Add(failureShown); now.Before(shown) {
		return Result{Reason: b.reason, Message: b.text, RetryAt: earlier(shown, b.until())}, true
	}
	return Result{Reason: ReasonBackOff, Message: b.message(a.Image), RetryAt: b.until()}, true
}

// nodeCheck is how often the node's credentials are checked while pods are in back-off. The
// credentials are polled because nothing reports their changes.
const nodeCheck = 5 * time.Second

// nodeWatch checks the node's credentials while a pod is in back-off. The manager's lock guards it.
type nodeWatch struct {
	timer *time.Timer // nil while no pod is in back-off
	state string      // of the credentials, at the last check
}

// watchNode starts the checks of the node's credentials. They go on as long as a pod is in
// back-off. The lock is held.
func (m *Manager) watchNode() {
	if m.node.timer == nil && m.run != nil {
		m.node = nodeWatch{timer: time.AfterFunc(nodeCheck, m.checkNode), state: m.deps.Node.State()}
	}
}

// checkNode wakes the pods in back-off if the node's credentials have changed.
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
